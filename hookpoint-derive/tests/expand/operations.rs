#[auto_hook]
impl Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let scores = softmax_last_dim(&(x.matmul(&x.t()?)? * self.scale)?)?;
        x.relu()?.max_pool2d_with_stride((2, 2), self.stride)?.conv2d(&self.w, 1, groups(x)?, 1, Self::GROUPS)
    }

    fn rotated(&self, x: &Tensor, rope: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let mask = causal(&x.abs()?, self.pos)?;
        let x = rope(x)?;
        candle_nn::ops::sdpa(&x, &x, &x, None, false, 0.5, 1.0)
    }
}
