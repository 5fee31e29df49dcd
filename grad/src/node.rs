//! A value with a gradient of our own: one step of a backward pass, whatever computed the value.
//!
//! Candle lets an operation of the user's have its own backward, if the operation also computes the
//! value. Here the value is there already, from a fused kernel perhaps. So the operation hands it over,
//! and what is left of it is the backward. That needs no code for any device.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::backend::BackendStorage;
use candle_core::{
    bail, CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp1, Layout, MetalStorage, Result,
    Shape, Storage, Tensor, TensorId,
};

/// What a backward pass brings to an operation.
pub(crate) struct Step<'s> {
    /// What the operation gave.
    pub value: Tensor,
    /// The gradient of that.
    pub grad: &'s Tensor,
    wants: &'s [bool],
}

impl Step<'_> {
    /// Is a gradient wanted for this argument?
    pub fn wants(&self, argument: usize) -> bool {
        self.wants.get(argument).copied().unwrap_or(false)
    }

    /// The gradient of this argument, where it is wanted.
    pub fn when(&self, argument: usize, grad: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        self.wants(argument).then(grad).transpose()
    }
}

type Backward = Box<dyn Fn(&Tensor, &Tensor) -> Result<Vec<Tensor>> + Send + Sync>;

/// Gives `value` the gradient that `backward` says. It was computed from `args`; those that have no
/// gradient are kept out of the graph, and `backward` is not asked for theirs.
///
/// `value` must not be used by anybody else: its memory is taken.
pub(crate) fn attach<const N: usize>(
    name: &'static str,
    value: Tensor,
    args: [&Tensor; N],
    backward: impl Fn(&Step<'_>) -> Result<[Option<Tensor>; N]> + Send + Sync + 'static,
) -> Result<Tensor> {
    let wants = args.map(Tensor::track_op);
    let tracked: Vec<&Tensor> = args.iter().copied().filter(|arg| arg.track_op()).collect();
    let all: Backward = Box::new(move |value, grad| {
        let step = Step { value: value.detach(), grad, wants: &wants };
        let grads = backward(&step)?;
        let wanted = grads.into_iter().zip(wants).filter(|(_, wanted)| *wanted);
        wanted.map(|(grad, _)| grad.map_or_else(|| missing(name), |grad| Ok(grad.detach()))).collect()
    });
    let value = if shares_memory(&value, &args) { value.force_contiguous()? } else { value };
    let value = value.detach();
    let node = |value: Tensor| -> Result<Node> {
        Ok(Node { name, value: Mutex::new(Some(own(value)?)), backward: all })
    };
    match tracked.as_slice() {
        [] => Ok(value),
        [a] => a.apply_op1(node(value)?),
        [a, b] => a.apply_op2(b, node(value)?),
        [a, b, c] => a.apply_op3(b, c, node(value)?),
        _ => bail!("{name}: a gradient for more than three arguments"),
    }
}

/// As [`attach`], where the gradient is that of `composed`: the same function, made of operations that
/// candle differentiates rightly. It is computed again in the backward pass.
pub(crate) fn attach_composed<const N: usize>(
    name: &'static str,
    value: Tensor,
    args: [&Tensor; N],
    composed: impl Fn([&Tensor; N]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let inputs = args.map(Tensor::detach);
    attach(name, value, args, move |step| {
        let mut given = inputs.clone();
        for (_, input) in given.iter_mut().enumerate().filter(|(number, _)| step.wants(*number)) {
            *input = candle_core::Var::from_tensor(input)?.into_inner();
        }
        let value = composed(given.each_ref())?;
        let grads = (value * step.grad)?.sum_all()?.backward()?;
        let mut found = given.each_ref().map(|_| None);
        for ((number, input), found) in given.iter().enumerate().zip(&mut found) {
            if step.wants(number) {
                *found = Some(match grads.get(input) {
                    Some(grad) => grad.clone(),
                    None => input.zeros_like()?,
                });
            }
        }
        Ok(found)
    })
}

/// What was given a right gradient in the place of candle's wrong one: a graph does not tell them apart. So
/// many are remembered, which is more than a graph has.
static RIGHT: Mutex<VecDeque<TensorId>> = Mutex::new(VecDeque::new());
const REMEMBERED: usize = 1 << 14;

fn right() -> MutexGuard<'static, VecDeque<TensorId>> {
    RIGHT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that this has a right gradient where candle's own would be wrong.
pub(crate) fn with_right_gradient(value: Tensor) -> Tensor {
    let mut right = right();
    if right.len() == REMEMBERED {
        right.pop_front();
    }
    right.push_back(value.id());
    value
}

/// Did a function of this crate make the value, in the place of an operation of candle's whose gradient is wrong? A
/// graph does not tell the two apart. Of very many values, the last are remembered.
pub fn has_right_gradient(id: TensorId) -> bool {
    right().contains(&id)
}

fn missing<T>(name: &str) -> Result<T> {
    bail!("{name}: no gradient was computed for an argument that needs one")
}

fn shares_memory(value: &Tensor, args: &[&Tensor]) -> bool {
    let storage = |tensor: &Tensor| std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0) as usize;
    let own = storage(value);
    args.iter().any(|arg| storage(arg) == own)
}

/// The tensor in memory of its own, without gaps.
fn own(value: Tensor) -> Result<Tensor> {
    let fits = {
        let (storage, layout) = value.storage_and_layout();
        let all = match &*storage {
            Storage::Cpu(storage) => length(storage) == Some(layout.shape().elem_count()),
            _ => layout.start_offset() == 0,
        };
        all && layout.is_contiguous()
    };
    if fits {
        Ok(value)
    } else {
        value.force_contiguous()
    }
}

fn length(storage: &CpuStorage) -> Option<usize> {
    Some(match storage {
        CpuStorage::BF16(data) => data.len(),
        CpuStorage::F16(data) => data.len(),
        CpuStorage::F32(data) => data.len(),
        CpuStorage::F64(data) => data.len(),
        _ => return None,
    })
}

struct Node {
    name: &'static str,
    value: Mutex<Option<Tensor>>,
    backward: Backward,
}

impl Node {
    fn take(&self) -> Result<Tensor> {
        let mut value = self.value.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match value.take() {
            Some(value) => Ok(value),
            None => bail!("{}: the value was taken before", self.name),
        }
    }

    fn cpu(&self) -> Result<(CpuStorage, Shape)> {
        let value = self.take()?;
        let taken = Taken(Mutex::new(None));
        value.inplace_op1(&taken)?;
        let storage = taken.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match storage {
            Some(storage) => Ok((storage, value.shape().clone())),
            None => bail!("{}: the value is not on the device of its arguments", self.name),
        }
    }

    fn cuda(&self) -> Result<(CudaStorage, Shape)> {
        let value = self.take()?;
        let (storage, layout) = value.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("{}: the value is not on the device of its arguments", self.name),
        }
    }

    fn metal(&self) -> Result<(MetalStorage, Shape)> {
        let value = self.take()?;
        let (storage, layout) = value.storage_and_layout();
        match &*storage {
            // The buffer is shared, and `value` is the only other one that knows it.
            Storage::Metal(storage) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("{}: the value is not on the device of its arguments", self.name),
        }
    }

    fn grads<const N: usize>(&self, value: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; N]> {
        let mut grads = (self.backward)(value, &grad.detach())?.into_iter();
        Ok(std::array::from_fn(|_| grads.next()))
    }
}

/// Takes the memory out of a tensor, so that a large value need not be copied.
struct Taken(Mutex<Option<CpuStorage>>);

impl InplaceOp1 for Taken {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<()> {
        let taken = std::mem::replace(storage, CpuStorage::U8(Vec::new()));
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(taken);
        Ok(())
    }
}

macro_rules! node {
    ($trait:ident, $($arg:ident)*) => {
        impl $trait for Node {
            fn name(&self) -> &'static str {
                self.name
            }

            fn cpu_fwd(&self, $($arg: &CpuStorage, _: &Layout),*) -> Result<(CpuStorage, Shape)> {
                $(let _ = $arg;)*
                self.cpu()
            }

            fn cuda_fwd(&self, $($arg: &CudaStorage, _: &Layout),*) -> Result<(CudaStorage, Shape)> {
                $(let _ = $arg;)*
                self.cuda()
            }

            fn metal_fwd(&self, $($arg: &MetalStorage, _: &Layout),*) -> Result<(MetalStorage, Shape)> {
                $(let _ = $arg;)*
                self.metal()
            }

            node!(@bwd $($arg)*);
        }
    };
    (@bwd $a:ident) => {
        fn bwd(&self, _: &Tensor, value: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
            let [a] = self.grads(value, grad)?;
            Ok(a)
        }
    };
    (@bwd $a:ident $b:ident) => {
        fn bwd(
            &self, _: &Tensor, _: &Tensor, value: &Tensor, grad: &Tensor,
        ) -> Result<(Option<Tensor>, Option<Tensor>)> {
            let [a, b] = self.grads(value, grad)?;
            Ok((a, b))
        }
    };
    (@bwd $a:ident $b:ident $c:ident) => {
        fn bwd(
            &self, _: &Tensor, _: &Tensor, _: &Tensor, value: &Tensor, grad: &Tensor,
        ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
            let [a, b, c] = self.grads(value, grad)?;
            Ok((a, b, c))
        }
    };
}
node!(CustomOp1, a);
node!(CustomOp2, a b);
node!(CustomOp3, a b c);
