#[auto_hook]
impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "tanh")]
        let x = tanh(1);
        let (mut att, _mask) = split(2);
        att = softmax(3);
        let count = |n: usize| n + 1;
        let Some(y) = maybe(4) else { return none(5) };
        if let Ok(z) = maybe(6) && done(7) {}
        Ok(y)
    }
}
