use candle_core::Tensor;
use hookpoint::prelude::*;

#[derive(AutoHook)]
struct Model {
    a: Tensor,
    #[hook(name = "a")]
    b: Tensor,
    #[hook(name = "")]
    c: Tensor,
    #[hook(name = "d.e")]
    d: Tensor,
    #[hook(name = "two words")]
    e: Tensor,
    #[hook(skip, name = "f")]
    f: Tensor,
}

#[derive(AutoHook)]
struct Pair(#[hook(name = "1")] Tensor, Tensor);

fn main() {}
