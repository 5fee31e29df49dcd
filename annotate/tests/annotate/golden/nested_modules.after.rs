//! Modules in modules.

pub mod encoder {
    //! The first half.

    use hookpoint::{auto_hook, AutoHook};

    // About the layer.
    #[derive(AutoHook)]
    pub struct Layer {
        norm: candle_nn::LayerNorm,
    }

    #[auto_hook]
    impl Layer {
        pub fn forward(&self, x: &Tensor) -> Result<Output> {
            todo!()
        }
    }

    pub mod output {
        use hookpoint::HookValue;

        use super::*;

        /// What comes out.
        #[derive(HookValue)]
        pub struct Output {
            pub hidden: Tensor,
            pub attentions: Option<Vec<Tensor>>,
        }
    }

    mod empty {}
}

mod decoder {
    use hookpoint::AutoHook;

    use super::encoder::Layer;

    #[derive(AutoHook)]
    pub struct Decoder {
        layers: Vec<Layer>,
    }

    #[cfg(test)]
    mod tests {
        struct Toy(super::Layer);
    }
}

fn main() {
    struct Local(candle_nn::Linear);
}
