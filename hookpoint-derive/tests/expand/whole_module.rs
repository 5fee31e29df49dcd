#[auto_hook]
mod model {
    #![allow(dead_code)]

    struct Block(Linear);

    #[derive(Clone, AutoHook)]
    struct Derived;

    #[hook(skip)]
    struct Config;

    fn scaled(x: &Tensor) -> Result<Tensor> {
        let y = tanh(1);
        y.exp()
    }

    mod inner {
        impl Block {
            fn check(&self) {}
        }
    }

    #[cfg(test)]
    mod tests {
        struct Untouched;
    }
}
