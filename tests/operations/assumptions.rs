//! What the project takes for granted about the inside of candle, one test an assumption. With a new candle, run this
//! file first: a name that fails says what no longer holds, and its comment where that matters.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{
    CpuStorage, CustomOp1, DType, Error, Layout, Module, Result, Shape, Storage, Tensor, TensorId, Var, D,
};
use candle_nn::{kv_cache::Cache, ops, rotary_emb, LayerNorm};
use hookpoint_grad::rule::{function, method, Class};

use crate::check::{check, distinct, flat, randn, CPU};

fn single(dims: &[usize]) -> Tensor {
    randn(dims).to_dtype(DType::F32).unwrap()
}

fn variable(dims: &[usize]) -> Var {
    Var::from_tensor(&single(dims)).unwrap()
}

fn gradient(x: &Tensor, y: &Tensor) -> Option<Vec<f64>> {
    let grads = y.sum_all().unwrap().backward().unwrap();
    grads.get(x).map(flat)
}

/// The words that a value hashes.
#[derive(Default)]
struct Words(Vec<u64>);

impl Hasher for Words {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().map(|byte| u64::from(*byte)));
    }

    fn write_usize(&mut self, word: usize) {
        self.0.push(word as u64);
    }
}

fn words(id: TensorId) -> Vec<u64> {
    let mut words = Words::default();
    id.hash(&mut words);
    words.0
}

fn buffer(tensor: &Tensor) -> usize {
    std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0) as usize
}

/// What a run computes is told from parameters by its higher number: `hookpoint/src/lookup.rs`.
#[test]
fn tensor_ids_are_one_word_and_count_up() {
    let (first, second) = (words(randn(&[1]).id()), words(randn(&[1]).id()));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert!(first < second, "{first:?} {second:?}");
}

/// A parameter is known by its id, also after a `clone` and a `contiguous()`: `hookpoint/src/tree`.
#[test]
fn clones_and_contiguous_tensors_keep_their_ids() {
    let x = variable(&[2, 3]);
    assert_eq!(x.as_tensor().clone().id(), x.id());
    assert_eq!(x.contiguous().unwrap().id(), x.id());
    for other in [
        x.detach(),
        x.t().unwrap(),
        x.t().unwrap().contiguous().unwrap(),
        x.reshape(6).unwrap(),
        x.force_contiguous().unwrap(),
        x.narrow(0, 0, 1).unwrap(),
    ] {
        assert_ne!(other.id(), x.id());
    }
}

/// Writes in place are found by the buffer that they go to: `hookpoint/src/run/effects.rs`.
#[test]
fn views_share_one_storage_and_copies_have_their_own() {
    let x = single(&[4, 3]);
    for view in [x.t().unwrap(), x.narrow(0, 1, 2).unwrap(), x.reshape(12).unwrap(), x.detach()] {
        assert_eq!(buffer(&view), buffer(&x));
    }
    for copy in [x.copy().unwrap(), x.force_contiguous().unwrap(), x.affine(1., 0.).unwrap()] {
        assert_ne!(buffer(&copy), buffer(&x));
    }
}

/// A cached window is copied with `force_contiguous`, since `copy` would take the whole parent along: `run/keep.rs`.
#[test]
fn only_force_contiguous_lets_the_parent_of_a_view_go() {
    let length = |tensor: &Tensor| match &*tensor.storage_and_layout().0 {
        Storage::Cpu(CpuStorage::F32(data)) => data.len(),
        _ => unreachable!("it is on the CPU"),
    };
    let window = single(&[4, 3]).narrow(0, 1, 2).unwrap();
    assert!(window.is_contiguous());
    assert_eq!(length(&window.contiguous().unwrap()), 12);
    assert_eq!(length(&window.copy().unwrap()), 12);
    assert_eq!(length(&window.force_contiguous().unwrap()), 6);
}

/// The length of a buffer and a fingerprint of its numbers are taken variant by variant: `run/keep.rs`,
/// `fingerprint.rs`, `grad/src/node.rs`. A new variant does not compile here.
#[test]
fn the_storage_on_the_cpu_has_these_variants() {
    let numbers = |storage: &CpuStorage| match storage {
        CpuStorage::U8(_) | CpuStorage::U32(_) => "whole",
        CpuStorage::I16(_) | CpuStorage::I32(_) | CpuStorage::I64(_) => "whole",
        CpuStorage::BF16(_) | CpuStorage::F16(_) | CpuStorage::F32(_) | CpuStorage::F64(_) => "float",
        CpuStorage::F8E4M3(_) | CpuStorage::F6E2M3(_) | CpuStorage::F6E3M2(_) => "small",
        CpuStorage::F4(_) | CpuStorage::F8E8M0(_) => "small",
    };
    for (dtype, expected) in [(DType::U32, "whole"), (DType::BF16, "float"), (DType::F8E4M3, "small")] {
        let x = Tensor::zeros(2, DType::F32, CPU).unwrap().to_dtype(dtype).unwrap();
        let (storage, _) = x.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { unreachable!("it is on the CPU") };
        assert_eq!(numbers(storage), expected);
    }
}

/// Where gradients are wanted, and where they are lost, is asked with it: `run/gradient`.
#[test]
fn track_op_is_true_where_a_variable_is_upstream() {
    let (x, plain) = (variable(&[2, 2]), single(&[2, 2]));
    assert!(x.track_op() && (x.as_tensor() + &plain).unwrap().track_op());
    assert!(!plain.track_op() && !plain.exp().unwrap().track_op() && !x.detach().track_op());
    // A whole number has no gradient, but candle says that it is tracked: the dtype is asked, too.
    assert!(x.to_dtype(DType::U32).unwrap().track_op());
    assert!(!ops::softmax_last_dim(&x.detach()).unwrap().track_op());
}

/// `run/gradient/candle_faults.rs` finds what a node was made from behind it, and `plan/backward.rs` the variables.
#[test]
fn sorted_nodes_begin_with_the_tensor_and_come_down_to_the_variables() {
    let (x, y) = (variable(&[2]), variable(&[2]));
    let z = (x.exp().unwrap() * y.as_tensor()).unwrap().sin().unwrap();
    let nodes = z.sorted_nodes();
    assert_eq!(nodes[0].id(), z.id());
    assert_eq!(nodes.len(), 5);
    let variables: Vec<TensorId> =
        nodes.iter().filter(|node| node.is_variable()).map(|node| node.id()).collect();
    assert_eq!(variables.len(), 2);
    assert!(variables.contains(&x.id()) && variables.contains(&y.id()));
    // Of a chain, each follows what was computed from it.
    let last = x.exp().unwrap().sin().unwrap();
    let dims: Vec<bool> = last.sorted_nodes().iter().map(|node| node.is_variable()).collect();
    assert_eq!(dims, [false, false, true]);
    // Nothing is listed that no variable is upstream of.
    assert!(single(&[2]).exp().unwrap().sorted_nodes().is_empty());
}

/// Gradients of intermediate values are read by taps, since candle throws them away: `run/gradient/tap.rs`.
#[test]
fn backward_keeps_gradients_of_variables_alone() {
    let x = variable(&[2]);
    let y = x.exp().unwrap();
    let grads = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    assert!(grads.get(&x).is_some() && grads.get(&y).is_none());
}

struct Counting(Arc<std::sync::Mutex<Vec<Vec<f64>>>>);

impl CustomOp1 for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        self.0.lock().unwrap().push(flat(grad));
        Ok(Some(grad.clone()))
    }
}

/// A tap sees the whole gradient, summed over all uses, exactly once.
#[test]
fn backward_comes_to_a_custom_operation_once_with_the_whole_gradient() {
    let seen = Arc::default();
    let x = variable(&[2]);
    let y = x.apply_op1(Counting(Arc::clone(&seen))).unwrap();
    let loss = ((y.affine(2., 0.).unwrap() + y.affine(3., 0.).unwrap()).unwrap() + &y).unwrap();
    assert_eq!(gradient(&x, &loss).unwrap(), [6., 6.]);
    assert_eq!(*seen.lock().unwrap(), [[6., 6.]]);
}

/// An error of ours travels through candle code as one of candle's: `hookpoint/src/error.rs`.
#[test]
fn wrapped_errors_come_back_through_backtraces_and_context() {
    let made = || hookpoint::Error::from(hookpoint::ErrorKind::NoModel).into_candle();
    for error in [made(), made().bt(), made().context("while loading"), made().with_path("model.safetensors")]
    {
        let text = error.to_string();
        let found = hookpoint::Error::recover(error);
        assert!(matches!(found.kind(), hookpoint::ErrorKind::NoModel), "{text}");
    }
    // Nothing comes back of what candle turns into text.
    let lost = hookpoint::Error::recover(Error::wrap(made()));
    assert!(matches!(lost.kind(), hookpoint::ErrorKind::Candle(_)));
}

/// `check_auto_hook` and `replay` take a value that a cache of keys and values gave for one that changes.
#[test]
fn a_cache_of_keys_and_values_gives_views_that_it_writes_to_later() {
    let mut cache = Cache::new(0, 4);
    cache.append(&single(&[1, 2])).unwrap();
    let early = cache.current_data().unwrap().unwrap();
    let before = buffer(&early);
    cache.append(&single(&[1, 2])).unwrap();
    assert_eq!(buffer(&cache.current_data().unwrap().unwrap()), before);
}

/// A foreign module without a gradient is called once more with gaps: `run/gradient/finite_differences.rs`.
#[test]
fn a_layer_norm_takes_the_long_way_where_its_input_has_gaps() {
    let norm = LayerNorm::new(single(&[4]), single(&[4]), 1e-5);
    let x = variable(&[3, 4]);
    let fused = norm.forward(&x).unwrap().sqr().unwrap();
    assert!(gradient(&x, &fused).is_none());
    let twice = Tensor::cat(&[x.as_tensor(), x.as_tensor()], D::Minus1).unwrap();
    let long = norm.forward(&twice.narrow(D::Minus1, 0, 4).unwrap()).unwrap().sqr().unwrap();
    assert!(gradient(&x, &long).is_some());
}

/// Patches and scattered parts are laid out before they go on: numerics and speed of what follows depend on it.
#[test]
fn some_operations_give_tensors_with_gaps() {
    let x = single(&[2, 3, 4]);
    let patched = x.slice_scatter(&single(&[2, 1, 4]), 1, 1).unwrap();
    assert!(!patched.is_contiguous());
    assert!(!x.narrow(1, 0, 1).unwrap().broadcast_as((2, 3, 4)).unwrap().is_contiguous());
}

/// A row of the table with the class `Rule` for a function stands for a kernel without a gradient. Where candle has
/// given it one, the row may go.
#[test]
fn these_kernels_still_have_no_gradient() {
    let x = variable(&[1, 2, 3, 4]);
    let (weight, bias) = (single(&[4]), single(&[4]));
    let (cos, sin) = (single(&[3, 2]), single(&[3, 2]));
    let quantized = QTensor::quantize(&single(&[3, 32]), GgmlDType::Q8_0).unwrap();
    let quantized = QMatMul::QTensor(Arc::new(quantized));
    let wide = variable(&[2, 32]);
    let kernels: [(&str, &Tensor, Result<Tensor>); 7] = [
        ("softmax_last_dim", &x, ops::softmax_last_dim(&x)),
        ("layer_norm", &x, ops::layer_norm(&x, &weight, &bias, 1e-5)),
        ("rms_norm", &x, ops::rms_norm(&x, &weight, 1e-5)),
        ("rope", &x, rotary_emb::rope(&x, &cos, &sin)),
        ("rope_i", &x, rotary_emb::rope_i(&x, &cos, &sin)),
        ("rope_thd", &x, rotary_emb::rope_thd(&x.transpose(1, 2).unwrap().contiguous().unwrap(), &cos, &sin)),
        ("QMatMul", &wide, quantized.forward(&wide)),
    ];
    for (name, x, y) in kernels {
        let y = y.unwrap();
        assert!(gradient(x, &y.sqr().unwrap()).is_none(), "`{name}` has a gradient now");
        assert!(name == "QMatMul" || function(name).is_some_and(|row| row.class == Class::Rule), "{name}");
    }
}

/// A row with the class `Wrong` stands for a gradient of candle's that is not right. Where it is now, the row may go.
#[test]
fn these_gradients_are_still_wrong() {
    let image = Var::from_tensor(&distinct(&[1, 1, 4, 4])).unwrap();
    let line = Var::from_tensor(&distinct(&[1, 1, 4])).unwrap();
    let index = Tensor::zeros((1, 1, 1), DType::U32, CPU).unwrap();
    let source = Tensor::ones((1, 1, 1), DType::F64, CPU).unwrap();
    // Each of these sums goes through every element of the input as often as it says.
    let sums: [(&str, &Tensor, f64, Result<Tensor>); 6] = [
        // Windows that overlap.
        ("unfold", &line, 4., line.unfold(2, 2, 1).and_then(|y| y.narrow(3, 0, 1)? + y.narrow(3, 0, 1)?)),
        ("max_pool2d", &image, 4., image.max_pool2d(2)),
        ("avg_pool2d_with_stride", &image, 9., image.avg_pool2d_with_stride(2, 1)),
        ("scatter", &line, 3., line.scatter(&index, &source, 2)),
        ("scatter_add", &line, 4., line.scatter_add(&index, &source, 2)),
        // Used twice: the one gradient takes the place of the other.
        (
            "upsample_nearest2d",
            &image,
            80.,
            image.upsample_nearest2d(8, 8).and_then(|y| y.sum_all()? + image.sum_all()?),
        ),
    ];
    for (name, x, right, y) in sums {
        let found = y.and_then(|y| Ok(y.sum_all()?.backward()?.get(x).cloned()));
        let is_right = match found {
            Ok(Some(grad)) => (flat(&grad).iter().sum::<f64>() - right).abs() < 1e-9,
            _ => false,
        };
        assert!(!is_right, "candle's gradient of `{name}` is right now");
        assert_eq!(method(name).map(|row| row.class), Some(Class::Wrong), "{name}");
    }
}

mod complete {
    //! The table of operations and candle's own source: nothing that candle can do is forgotten.

    use std::panic::AssertUnwindSafe;
    use std::path::PathBuf;
    use std::process::Command;

    use syn::{ImplItem, Item, ReturnType, Type, Visibility};

    use super::*;

    type Method = fn(&Tensor) -> Result<Tensor>;

    /// Methods whose gradient is candle's own, each as it is compared with finite differences. The input is
    /// `[2, 3, 4]`, positive, with all numbers different.
    const RIGHT: &[(&str, Method)] = &[
        ("apply", |x| x.apply(&candle_nn::Activation::Silu)),
        ("apply_t", |x| x.apply_t(&candle_nn::Activation::Silu, false)),
        ("affine", |x| x.affine(2., 1.)),
        ("abs", Tensor::abs),
        ("broadcast_as", |x| x.broadcast_as((2, 2, 3, 4))),
        ("broadcast_left", |x| x.broadcast_left(2)),
        ("broadcast_maximum", |x| x.broadcast_maximum(&x.mean_keepdim(2)?)),
        ("broadcast_minimum", |x| x.broadcast_minimum(&x.mean_keepdim(2)?)),
        ("broadcast_pow", |x| x.broadcast_pow(&Tensor::new(2f64, CPU)?)),
        ("clamp", |x| x.clamp(0.35, 1.25)),
        ("contiguous", |x| x.t()?.contiguous()),
        ("copy", Tensor::copy),
        ("cos", Tensor::cos),
        ("cumsum", |x| x.cumsum(1)),
        ("dot", |x| x.flatten_all()?.dot(&x.flatten_all()?)),
        ("elu", |x| x.affine(1., -1.03)?.elu(0.5)),
        ("embedding", |x| x.get(0)?.embedding(&Tensor::new(&[1u32, 0, 1], CPU)?)),
        ("erf", Tensor::erf),
        ("exp", Tensor::exp),
        ("expand", |x| x.unsqueeze(0)?.expand((2, 2, 3, 4))),
        ("flatten", |x| x.flatten(0, 1)),
        ("flatten_all", Tensor::flatten_all),
        ("flatten_from", |x| x.flatten_from(1)),
        ("flatten_to", |x| x.flatten_to(1)),
        ("flip", |x| x.flip(&[1])),
        ("force_contiguous", |x| x.t()?.force_contiguous()),
        ("gather", |x| {
            x.gather(&Tensor::new(&[[[1u32, 0, 1, 2]]], CPU)?.broadcast_as((2, 1, 4))?.contiguous()?, 1)
        }),
        ("get", |x| x.get(1)),
        ("get_on_dim", |x| x.get_on_dim(1, 2)),
        ("index_add", |x| x.index_add(&Tensor::new(&[0u32, 2], CPU)?, &x.narrow(1, 0, 2)?.contiguous()?, 1)),
        ("index_select", |x| x.index_select(&Tensor::new(&[2u32, 0, 2], CPU)?, 1)),
        ("log", Tensor::log),
        ("log_sum_exp", |x| x.log_sum_exp(2)),
        ("max", |x| x.max(1)),
        ("max_all", Tensor::max_all),
        ("max_keepdim", |x| x.max_keepdim(1)),
        ("maximum", |x| x.maximum(0.55)),
        ("mean", |x| x.mean(1)),
        ("mean_all", Tensor::mean_all),
        ("mean_keepdim", |x| x.mean_keepdim(1)),
        ("min", |x| x.min(1)),
        ("min_all", Tensor::min_all),
        ("min_keepdim", |x| x.min_keepdim(1)),
        ("minimum", |x| x.minimum(0.55)),
        ("mv", |x| x.get(0)?.mv(&x.get(1)?.get(0)?)),
        ("narrow", |x| x.narrow(1, 1, 2)),
        ("neg", Tensor::neg),
        ("norm", Tensor::norm),
        ("pad_with_same", |x| x.pad_with_same(1, 1, 2)),
        ("pad_with_zeros", |x| x.pad_with_zeros(1, 1, 2)),
        ("permute", |x| x.permute((2, 0, 1))),
        ("pow", |x| x.pow(&Tensor::new(2f64, CPU)?.broadcast_as((2, 3, 4))?)),
        ("powf", |x| x.powf(2.5)),
        ("recip", Tensor::recip),
        ("relu", |x| x.affine(1., -1.03)?.relu()),
        ("repeat", |x| x.repeat((2, 1, 1))),
        ("reshape", |x| x.reshape((6, 4))),
        ("roll", |x| x.roll(1, 2)),
        ("silu", Tensor::silu),
        ("sin", Tensor::sin),
        ("slice_assign", |x| x.slice_assign(&[0..2, 1..2, 0..4], &x.narrow(1, 0, 1)?)),
        ("slice_scatter", |x| x.slice_scatter(&x.narrow(1, 0, 1)?, 1, 2)),
        ("slice_scatter0", |x| x.slice_scatter0(&x.narrow(0, 0, 1)?, 1)),
        ("sqr", Tensor::sqr),
        ("sqrt", Tensor::sqrt),
        ("squeeze", |x| x.narrow(0, 0, 1)?.squeeze(0)),
        ("sum", |x| x.sum(1)),
        ("sum_all", Tensor::sum_all),
        ("sum_keepdim", |x| x.sum_keepdim(1)),
        ("t", Tensor::t),
        ("tanh", Tensor::tanh),
        ("to_device", |x| x.to_device(CPU)),
        ("to_dtype", |x| x.to_dtype(DType::F64)),
        ("transpose", |x| x.transpose(0, 2)),
        ("unsqueeze", |x| x.unsqueeze(1)),
        ("var", |x| x.var(1)),
        ("var_keepdim", |x| x.var_keepdim(1)),
    ];

    /// What it gives has no gradient because it is whole numbers, or steps, or not computed from the numbers at all.
    const WITHOUT: &str = "
        arg_sort_last_dim argmax argmax_keepdim argmin argmin_keepdim broadcast_eq broadcast_ge broadcast_gt
        broadcast_le broadcast_lt broadcast_ne ceil cmp empty_like eq floor ge gt le lt ne ones_like rand_like
        randn_like round round_to sign zeros_like
    ";

    /// The user's own operation has the user's own gradient.
    const OF_USERS: &str = "apply_op1 apply_op1_arc apply_op2 apply_op2_arc apply_op3 apply_op3_arc";

    #[test]
    fn the_gradients_of_candle_that_are_left_to_it_are_right() {
        let mut wrong = Vec::new();
        for (name, f) in RIGHT {
            let x = distinct(&[2, 3, 4]).affine(0.7, 0.31).unwrap();
            if std::panic::catch_unwind(AssertUnwindSafe(|| check(&[x], |x| f(&x[0])))).is_err() {
                wrong.push(*name);
            }
        }
        assert!(wrong.is_empty(), "candle's gradient is wrong: {wrong:?}");
    }

    /// The folder of a package that cargo has for this workspace.
    pub(super) fn source(package: &str) -> PathBuf {
        let cargo = std::env::var_os("CARGO").expect("tests are run by cargo");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let arguments = ["metadata", "--format-version", "1", "--offline"];
        let output = Command::new(cargo).args(arguments).current_dir(root).output().unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let found = packages.iter().find(|one| one["name"] == package).expect("candle is a dependency");
        PathBuf::from(found["manifest_path"].as_str().unwrap()).with_file_name("src")
    }

    /// Does this give a tensor?
    fn gives_tensor(output: &ReturnType) -> bool {
        let ReturnType::Type(_, ty) = output else { return false };
        let Type::Path(path) = &**ty else { return false };
        let text = quoted(path);
        ["Result < Self >", "Result < Tensor >", "Self", "Tensor"].contains(&text.as_str())
    }

    fn quoted(path: &syn::TypePath) -> String {
        let last = path.path.segments.last().unwrap();
        let inside = match &last.arguments {
            syn::PathArguments::AngleBracketed(all) => match all.args.first() {
                Some(syn::GenericArgument::Type(Type::Path(path))) => {
                    format!(" < {} >", path.path.segments.last().unwrap().ident)
                }
                _ => String::new(),
            },
            _ => String::new(),
        };
        format!("{}{inside}", last.ident)
    }

    /// The public methods of a tensor that give one.
    fn methods() -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for file in std::fs::read_dir(source("candle-core")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let Ok(file) = syn::parse_file(&std::fs::read_to_string(&path).unwrap()) else { continue };
            for item in file.items {
                let Item::Impl(block) = item else { continue };
                let of_tensor = matches!(&*block.self_ty, Type::Path(path) if path.path.is_ident("Tensor"));
                if block.trait_.is_some() || !of_tensor {
                    continue;
                }
                for item in block.items {
                    match item {
                        ImplItem::Fn(method)
                            if matches!(method.vis, Visibility::Public(_))
                                && method.sig.receiver().is_some()
                                && gives_tensor(&method.sig.output) =>
                        {
                            found.insert(method.sig.ident.to_string());
                        }
                        // `unary_op!(exp, Exp);`
                        ImplItem::Macro(item) => {
                            let first = item.mac.tokens.into_iter().next().unwrap();
                            found.insert(first.to_string());
                        }
                        _ => {}
                    }
                }
            }
        }
        found
    }

    #[test]
    fn every_method_of_a_tensor_has_a_row_or_is_known_to_be_right() {
        let named = [WITHOUT, OF_USERS].into_iter().flat_map(str::split_whitespace);
        let right: BTreeSet<&str> = RIGHT.iter().map(|(name, _)| *name).chain(named).collect();
        let methods = methods();
        let new: Vec<&String> =
            methods.iter().filter(|name| method(name).is_none() && !right.contains(name.as_str())).collect();
        assert!(new.is_empty(), "neither in the table nor known to be right: {new:?}");
        let gone: Vec<&&str> = right.iter().filter(|name| !methods.contains(**name)).collect();
        assert!(gone.is_empty(), "candle has no more: {gone:?}");
    }

    /// Functions of `candle_nn` that are made of a tensor's methods, or of those with a row. `one_hot` gives whole numbers, and
    /// the kernels for experts exist on a GPU alone, where a run refuses what gives no gradient.
    const COMPOSED: &str = "
        binary_cross_entropy_with_logit cross_entropy dropout gumbel_softmax hard_sigmoid huber layer_norm_slow
        leaky_relu log_softmax mish moe_gemm moe_gemm_gguf mse nll one_hot pixel_shuffle pixel_unshuffle
        replication_pad2d rms_norm_slow rope_i_slow rope_slow selu sigmoid silu softmax swiglu
    ";

    #[test]
    fn every_function_of_candle_nn_has_a_row_or_is_made_of_methods() {
        let composed: BTreeSet<&str> = COMPOSED.split_whitespace().collect();
        let mut found = BTreeSet::new();
        let folder = source("candle-nn");
        for file in
            ["ops.rs", "rotary_emb.rs", "loss.rs", "moe.rs", "sampling.rs", "encoding.rs", "attention/mod.rs"]
        {
            let parsed = syn::parse_file(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap();
            for item in parsed.items {
                let Item::Fn(function) = item else { continue };
                if matches!(function.vis, Visibility::Public(_)) && gives_tensor(&function.sig.output) {
                    found.insert(function.sig.ident.to_string());
                }
            }
        }
        let new: Vec<&String> = found
            .iter()
            .filter(|name| function(name).is_none() && !composed.contains(name.as_str()))
            .collect();
        assert!(new.is_empty(), "neither in the table nor made of methods: {new:?}");
        let gone: Vec<&&str> = composed.iter().filter(|name| !found.contains(**name)).collect();
        assert!(gone.is_empty(), "candle has no more: {gone:?}");
    }
}
