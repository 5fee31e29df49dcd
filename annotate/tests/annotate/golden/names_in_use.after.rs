use hookpoint::auto_hook;

use other::AutoHook;

#[derive(::hookpoint::AutoHook)]
struct A {
    l: Linear,
}

#[auto_hook]
impl A {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply(&self.l)
    }
}

mod inner {
    use hookpoint::AutoHook;

    #[derive(AutoHook)]
    struct B {
        l: Linear,
    }
}
