#[auto_hook]
pub fn rotate_half(x: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let (a, b) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
    Tensor::cat(&[&b.neg()?, &a], D::Minus1)
}

#[auto_hook]
fn scaled<M: Module>(layer: &M, x: &Tensor, scale: f64) -> Result<Tensor> {
    softmax_last_dim(&(layer.forward(x)? * scale)?)
}

#[auto_hook]
impl Attention {
    fn new(vb: VarBuilder) -> Result<Self> {
        let scale = vb.get(4, "scale")?.exp()?;
        Ok(Self { scale })
    }

    fn masked(scores: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        match mask {
            Some(mask) => scores.broadcast_add(mask),
            None => Ok(scores.clone()),
        }
    }

    #[hook(skip)]
    fn alone(x: &Tensor) -> Result<Tensor> {
        x.exp()
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Self::masked(x, None)
    }
}
