/// Candle's layers, one row each: the type, and how it is called. Whoever has something to say of every layer calls this
/// with a macro of their own: the walk over a model, and the few lines that may look behind a type.
///
/// `Module` and `ModuleT` are the traits by which a layer is called with one tensor; `Steps` are candle's recurrent
/// layers, which have methods of their own. A type is named by its path alone: one with a lifetime does not compile
/// where the rows are used, and a row without its [`KnownLayer`](crate::layer::KnownLayer) does not compile here.
#[doc(hidden)]
#[macro_export]
macro_rules! layers {
    ($with:ident) => {
        $with! {
            candle_core::quantized::QMatMul: Module;
            candle_nn::Activation: Module;
            candle_nn::BatchNorm: ModuleT;
            candle_nn::Conv1d: Module;
            candle_nn::Conv2d: Module;
            candle_nn::ConvTranspose1d: Module;
            candle_nn::ConvTranspose2d: Module;
            candle_nn::Dropout: ModuleT;
            candle_nn::Embedding: Module;
            candle_nn::GRU: Steps;
            candle_nn::GroupNorm: Module;
            candle_nn::LSTM: Steps;
            candle_nn::LayerNorm: Module;
            candle_nn::Linear: Module;
            candle_nn::PReLU: Module;
            candle_nn::RmsNorm: Module;
            candle_nn::ops::Identity: Module;
        }
    };
}
