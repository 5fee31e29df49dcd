//! The same model hooked by hand: what the two annotations in `annotated.rs` write for you.
//!
//! Read it to understand the macros, not to copy it: `hookpoint::__private` is what generated code
//! calls, and it changes with the macros. Every step first asks whether somebody listens, which is
//! one load and one branch; where nobody does, nothing else happens.

use candle_core::{Module, Result, Tensor};
use candle_nn::{embedding, linear, Embedding, Linear, VarBuilder};
use hookpoint::__private::{
    active, before_call, bound, inventory, operations_wanted, typeid, uses, Before, CallSite, Effects,
    Entered, Erased, ImplInfo, MethodInfo, OpKind, OpSite, Owner, Probe, Slot, Uses, ValueOps,
};
use hookpoint::{AutoHook, Visitor};

use crate::{BLOCKS, HIDDEN, TOKENS, WIDTH};

// ---------------------------------------------------------------------------------------------
// `#[derive(AutoHook)]`: structure
// ---------------------------------------------------------------------------------------------

pub struct Mlp {
    up: Linear,
    down: Linear,
    scale: Tensor,
}

/// A walk over the model announces where every module and parameter lives, so that a call can be
/// recognized by the address and type of what is called.
impl AutoHook for Mlp {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |visitor| {
            visitor.field("up", &self.up);
            visitor.field("down", &self.down);
            visitor.field("scale", &self.scale);
        });
    }
}

pub struct Model {
    embed: Embedding,
    blocks: Vec<Mlp>,
    head: Linear,
}

impl AutoHook for Model {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |visitor| {
            visitor.field("embed", &self.embed);
            visitor.field("blocks", &self.blocks);
            visitor.field("head", &self.head);
        });
    }
}

// ---------------------------------------------------------------------------------------------
// `#[auto_hook]`: behaviour
// ---------------------------------------------------------------------------------------------

// The names of a method's arguments and bindings, so that `blocks.0:hidden` can be checked before a
// run. The macro knows them from the source.

static MLP_FORWARD: MethodInfo = MethodInfo {
    name: "forward",
    args: &["x"],
    values: &["hidden", "change"],
    file: file!(),
    line: line!(),
    effects: Effects::NONE,
    writes: false,
    calls: &[],
};
const HIDDEN_VALUE: u32 = 0;
const CHANGE_VALUE: u32 = 1;

// A name that is bound twice has two points, and `:stream` selects both.
static MODEL_FORWARD: MethodInfo = MethodInfo {
    name: "forward",
    args: &["ids"],
    values: &["stream.0", "stream.1"],
    file: file!(),
    line: line!(),
    effects: Effects::NONE,
    writes: false,
    calls: &[],
};
const EMBEDDED_STREAM: u32 = 0;
const BLOCK_STREAM: u32 = 1;

inventory::submit! {
    ImplInfo {
        owner: Owner::Exact(typeid::of::<Mlp>),
        type_name: "Mlp",
        methods: &[MethodInfo { name: "forward", args: &["x"], values: &["hidden", "change"], file: file!(), line: line!(), effects: Effects::NONE, writes: false, calls: &[] }],
    }
}
inventory::submit! {
    ImplInfo {
        owner: Owner::Exact(typeid::of::<Model>),
        type_name: "Model",
        methods: &[MethodInfo { name: "forward", args: &["ids"], values: &["stream.0", "stream.1"], file: file!(), line: line!(), effects: Effects::NONE, writes: false, calls: &[] }],
    }
}

/// What can be done with a method's result: how to get at its tensors, how to make one from a tensor
/// (for a method that is skipped) or from an error (for a run that is over).
fn result_of_a_tensor() -> ValueOps<Result<Tensor>> {
    use hookpoint::__private::probe::{CanCopyOk as _, CanFail as _, CanSkip as _, HasTensors as _};
    let probe = &&&Probe::<Result<Tensor>>::NEW;
    ValueOps {
        each_tensor: probe.each_tensor(),
        from_error: probe.from_error(),
        from_tensor: probe.from_tensor(),
        copy: probe.copy(),
    }
}

/// Calls a layer of candle's, which knows nothing of hooks: these are asked before the call (they may
/// want its input, or replace it altogether) and shown the result after it.
fn call<M: Module>(site: &'static CallSite, layer: &M, input: &Tensor) -> Result<Tensor> {
    if !active() {
        return layer.forward(input);
    }
    match before_call(site, Erased::of(layer), &[Erased::of(input)]) {
        Before::Done(result) | Before::Made(result) => result,
        Before::Call(token) => token.after(layer.forward(input)),
    }
}

/// Says which layer a call means, in case that its address does not: the field's name.
macro_rules! site {
    ($field:literal) => {{
        static SITE: CallSite = CallSite { method: "forward", field: $field, file: file!(), line: line!() };
        &SITE
    }};
}

impl Mlp {
    pub fn load(vb: VarBuilder<'_>) -> Result<Self> {
        let (up, down) = (linear(WIDTH, HIDDEN, vb.pp("up"))?, linear(HIDDEN, WIDTH, vb.pp("down"))?);
        Ok(Self { up, down, scale: vb.get(WIDTH, "scale")? })
    }

    /// `x` and the result are [batch, pos, width].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // From here to the end of this function, named values belong to this module.
        let entered = Entered::new(&MLP_FORWARD, self);
        // Some hooks want to see all arguments at once.
        if entered.wants_preview() {
            entered.preview(&[(0, Erased::of(&x))]);
        }
        // The argument is a point, `:x` or `:in`; a new value is kept in the slot.
        let mut slot = Slot::new();
        let x = entered.by_ref(0, x, &mut slot);
        // A module whose whole output is replaced does not run.
        let mut result = match entered.skipped(result_of_a_tensor) {
            Some(result) => result,
            // The original body, where `return` and `?` may leave it at any place.
            None => self.body(x),
        };
        entered.result(result_of_a_tensor, &mut result);
        result
    }

    fn body(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = call(site!("up"), &self.up, x)?.gelu()?;
        let hidden = bound(&MLP_FORWARD, HIDDEN_VALUE, hidden);
        let change = call(site!("down"), &self.down, &hidden)?;
        let change = bound(&MLP_FORWARD, CHANGE_VALUE, change);
        // A parameter's point fires on the result of the operation that uses it.
        let uses = if operations_wanted() {
            static SITE: OpSite =
                OpSite { name: "broadcast_mul", kind: OpKind::Method, file: file!(), line: line!() };
            uses(&SITE, &[(0, "", Erased::of(&change)), (1, "scale", Erased::of(&self.scale))])
        } else {
            Uses::NONE
        };
        uses.result(change.broadcast_mul(&self.scale))
    }
}

impl Model {
    pub fn load(vb: VarBuilder<'_>) -> Result<Self> {
        let block = |number| Mlp::load(vb.pp("blocks").pp(number));
        Ok(Self {
            embed: embedding(TOKENS, WIDTH, vb.pp("embed"))?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_>>()?,
            head: linear(WIDTH, TOKENS, vb.pp("head"))?,
        })
    }

    /// `ids` are [batch, pos], the scores [batch, pos, token].
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let entered = Entered::new(&MODEL_FORWARD, self);
        if entered.wants_preview() {
            entered.preview(&[(0, Erased::of(&ids))]);
        }
        let mut slot = Slot::new();
        let ids = entered.by_ref(0, ids, &mut slot);
        let mut result = match entered.skipped(result_of_a_tensor) {
            Some(result) => result,
            None => self.body(ids),
        };
        entered.result(result_of_a_tensor, &mut result);
        result
    }

    fn body(&self, ids: &Tensor) -> Result<Tensor> {
        let stream = call(site!("embed"), &self.embed, ids)?;
        let mut stream = bound(&MODEL_FORWARD, EMBEDDED_STREAM, stream);
        for block in &self.blocks {
            // No call site here: `Mlp::forward` announces itself.
            let next = (&stream + block.forward(&stream)?)?;
            stream = bound(&MODEL_FORWARD, BLOCK_STREAM, next);
        }
        call(site!("head"), &self.head, &stream)
    }
}
