#[auto_hook]
impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply(&self.up)?.apply_t(self.drop(), false)?;
        Module::forward(&self.down, &self.cell.borrow().forward(x)?)
    }
}
