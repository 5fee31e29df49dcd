#[auto_hook]
impl<T> Attention<T> {
    fn new(width: usize) -> Self {
        Self { width }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn mask(&self, n: usize) -> &Tensor {
        pick(n)
    }

    #[hook(skip)]
    fn plain(&self, x: &Tensor) -> Tensor {
        let y = tanh(1);
        y
    }

    fn reset(&mut self, mut x: Tensor, mask: Option<&Tensor>, cache: &mut Cache<Tensor>) {
        clear(1);
    }

    fn decode(&self, code: &T, config: &Config, codes: &[T]) -> Result<Tensor> {
        decode(1)
    }

    fn encode(self: Arc<Self>, (a, b): (f64, f64), #[cfg(all())] x: &Tensor) -> anyhow::Result<Output> {
        encode(a, b)
    }
}
