//! Candle's own layers among the modules of a model.

use hookpoint_grad::layer::KnownLayer;

use crate::erased::Erased;

/// The module, if it is one of candle's layers.
pub(crate) fn known_layer(module: Erased<'_>) -> Option<&dyn KnownLayer> {
    macro_rules! first {
        ($($($path:ident)::+ : $by:ident;)*) => {
            None$(.or_else(|| module.get::<$($path)::+>().map(|layer| -> &dyn KnownLayer { layer })))*
        };
    }
    hookpoint_grad::layers!(first)
}
