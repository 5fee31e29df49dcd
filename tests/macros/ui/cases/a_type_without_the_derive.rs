use hookpoint::prelude::*;

struct Model;

#[derive(AutoHook)]
struct Wrapper<M> {
    inner: M,
}

fn hooked<M: AutoHook>(_: M) {}

fn main() {
    let _ = Hooked::new(Model);
    hooked(Wrapper { inner: Model });
}
