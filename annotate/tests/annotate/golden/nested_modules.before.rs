//! Modules in modules.

pub mod encoder {
    //! The first half.

    // About the layer.
    pub struct Layer {
        norm: candle_nn::LayerNorm,
    }

    impl Layer {
        pub fn forward(&self, x: &Tensor) -> Result<Output> {
            todo!()
        }
    }

    pub mod output {
        use super::*;

        /// What comes out.
        pub struct Output {
            pub hidden: Tensor,
            pub attentions: Option<Vec<Tensor>>,
        }
    }

    mod empty {}
}

mod decoder {
    use super::encoder::Layer;

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
