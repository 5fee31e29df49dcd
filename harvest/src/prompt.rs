//! What a corpus is made of, as far as a store has to know it: something that can be hashed.

use candle_core::{DType, Device, Tensor};
use hookpoint::Result;

/// One batch of a corpus. A store keeps a hash of all that it has seen, so that it can tell when a corpus is not
/// the one that it was begun with.
///
/// Implemented for texts, token ids, tensors, and lists, pairs and references of these. For a type of your own,
/// hash everything that the model is given:
///
/// ```
/// use hookpoint_harvest::{Prompt, PromptHasher};
///
/// struct Question { text: String, images: Vec<candle_core::Tensor> }
///
/// impl Prompt for Question {
///     fn hash(&self, hasher: &mut PromptHasher) -> hookpoint::Result<()> {
///         self.text.hash(hasher)?;
///         self.images.hash(hasher)
///     }
/// }
/// ```
pub trait Prompt {
    /// Adds everything that the model is given to the hash.
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()>;
}

/// The hash of the prompts up to one of them.
#[derive(Clone)]
pub struct PromptHasher(blake3::Hasher);

impl PromptHasher {
    /// Adds bytes, and how many they are: `ab`, `c` is not `a`, `bc`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// A chain: the hash up to a prompt is made of the hash before it and the prompt, so 32 bytes are all that has to be
/// kept to go on.
#[derive(Clone, Copy, Default)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    pub(super) fn followed_by(self, prompt: &(impl Prompt + ?Sized)) -> Result<Self> {
        let mut hasher = PromptHasher(blake3::Hasher::new());
        hasher.add(&self.0);
        prompt.hash(&mut hasher)?;
        Ok(Self(*hasher.0.finalize().as_bytes()))
    }

    pub(super) fn text(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        Some(Self(*blake3::Hash::from_hex(text).ok()?.as_bytes()))
    }
}

impl Prompt for str {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        hasher.add(self.as_bytes());
        Ok(())
    }
}

impl Prompt for String {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        self.as_str().hash(hasher)
    }
}

/// Numbers, each by its bytes.
macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Prompt for $number {
            fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
                hasher.add(&self.to_le_bytes());
                Ok(())
            }
        }
    )*};
}
numbers!(u8, u32, i64, u64, usize, f32, f64);

impl Prompt for Tensor {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        hasher.add(self.dtype().as_str().as_bytes());
        for dim in self.dims() {
            hasher.add(&(*dim as u64).to_le_bytes());
        }
        let flat = self.to_device(&Device::Cpu)?.flatten_all()?;
        // Wide enough for every number of the kind, so that no two inputs hash alike.
        match self.dtype().is_float() {
            true => hasher.add(bytemuck::cast_slice(&flat.to_dtype(DType::F64)?.to_vec1::<f64>()?)),
            false => hasher.add(bytemuck::cast_slice(&flat.to_dtype(DType::I64)?.to_vec1::<i64>()?)),
        }
        Ok(())
    }
}

impl<P: Prompt> Prompt for [P] {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        hasher.add(&(self.len() as u64).to_le_bytes());
        self.iter().try_for_each(|prompt| prompt.hash(hasher))
    }
}

impl<P: Prompt> Prompt for Vec<P> {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        self.as_slice().hash(hasher)
    }
}

impl<P: Prompt, const N: usize> Prompt for [P; N] {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        self.as_slice().hash(hasher)
    }
}

impl<P: Prompt + ?Sized> Prompt for &P {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        (**self).hash(hasher)
    }
}

impl<A: Prompt, B: Prompt> Prompt for (A, B) {
    fn hash(&self, hasher: &mut PromptHasher) -> Result<()> {
        self.0.hash(hasher)?;
        self.1.hash(hasher)
    }
}
