use candle_core::Tensor;
use hookpoint::prelude::*;

// Every mistake is reported at once.
#[derive(AutoHook)]
#[hook(skip)]
struct Model {
    #[hook(nme = "a", ignore)]
    a: Tensor,
    #[hook(skp)]
    b: Tensor,
    #[hook]
    c: Tensor,
    #[hook = "d"]
    d: Tensor,
    #[hook(name)]
    e: Tensor,
    #[hook(name = 6)]
    f: Tensor,
}

#[derive(AutoHook)]
enum Kind {
    #[hook(name = "one")]
    One(Tensor),
}

#[auto_hook(skip)]
impl Model {
    #[hook(skipped)]
    fn forward(&self) {}

    #[hook(name = "other")]
    fn other(&self) {}
}

#[derive(HookValue)]
struct Output {
    #[hook(rename = "x")]
    y: Tensor,
}

fn main() {
    // The implementations are there all the same.
    fn hooked<M: AutoHook, V: HookValue>() {}
    hooked::<Model, Output>();
    hooked::<Kind, Output>();
}
