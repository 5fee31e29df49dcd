use other::AutoHook;

struct A {
    l: Linear,
}

impl A {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply(&self.l)
    }
}

mod inner {
    struct B {
        l: Linear,
    }
}
