use hookpoint::{auto_hook, AutoHook};

use candle_nn::{Conv2d, Func, Linear};

#[derive(AutoHook)]
#[derive(Debug, Clone)]
pub enum Proj {
    Conv(Conv2d),
    Lin { inner: Linear },
    Identity,
}

#[auto_hook]
impl Proj {
    pub fn go(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Conv(c) => c.forward(x),
            Self::Lin { inner } => inner.forward(x),
            Self::Identity => Ok(x.clone()),
        }
    }
}

pub enum Kind {
    A,
    B(usize),
}

#[derive(AutoHook)]
pub struct Residual<M>
where
    M: Module,
{
    inner: M,
}

#[auto_hook]
impl<M: Module> Module for Residual<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x + self.inner.forward(x)?
    }
}

pub struct View<'a> {
    x: &'a Tensor,
}

#[derive(AutoHook)]
pub struct Sum<'a, const N: usize> {
    parts: [&'a Func<'a>; N],
}

#[auto_hook]
impl<'a, const N: usize> Sum<'a, N> {
    pub fn forward(&'a self, x: &'a Tensor) -> Result<View<'a>> {
        todo!()
    }

    pub async fn later(&self) {}
}

impl<const N: usize> Sum<'_, N> {
    pub const fn len(&self) -> usize {
        N
    }
}
