//! In the order of tacklebox's documentation.

use std::sync::{Arc, Mutex};

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::{
    manage::{HookCategory, HookFilter, HookManager},
    ErrorKind,
};

pub type Test = anyhow::Result<()>;

pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

pub fn row(numbers: &[f32]) -> Tensor {
    Tensor::from_slice(numbers, (1, numbers.len()), &device()).unwrap()
}

pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A layer that multiplies by a number.
pub fn times(factor: f64) -> Linear {
    let eye = Tensor::eye(2, DType::F32, &device()).unwrap();
    Linear::new((eye * factor).unwrap(), None)
}

/// Takes two tensors and may take a third; gives two.
#[derive(AutoHook)]
pub struct Mix {
    pub scale: Tensor,
}

#[auto_hook]
impl Mix {
    pub fn forward(&self, a: &Tensor, b: &Tensor, c: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let sum = match c {
            Some(c) => ((a + b)? + c)?,
            None => (a + b)?,
        };
        let scaled = sum.broadcast_mul(&self.scale)?;
        Ok((scaled, (a - b)?))
    }
}

/// `conv1`, relu, `conv2`, then `mix` of the two.
#[derive(AutoHook)]
pub struct Net {
    pub conv1: Linear,
    pub conv2: Linear,
    pub mix: Mix,
}

#[auto_hook]
impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.conv1.forward(x)?.relu()?;
        let out = self.conv2.forward(&hidden)?;
        let (sum, difference) = self.mix.forward(&hidden, &out, None)?;
        sum + difference
    }
}

/// With both layers the identity and the input positive: sum is 2x, the difference 0, the output 2x.
pub fn net() -> Hooked<Net> {
    let scale = Tensor::ones(2, DType::F32, &device()).unwrap();
    Hooked::new(Net { conv1: times(1.), conv2: times(1.), mix: Mix { scale } })
}

pub fn input() -> Tensor {
    row(&[1., 2.])
}

pub fn output(net: &Hooked<Net>) -> Vec<f32> {
    numbers(&net.run(|m| m.forward(&input())).unwrap())
}

fn double(_: &HookCtx<'_>, x: &Tensor) -> hookpoint::Result<Option<Tensor>> {
    Ok(Some((x * 2.)?))
}

fn ids(hooks: &HookManager) -> Vec<String> {
    hooks.list().into_iter().map(|hook| hook.id).collect()
}

fn active(hooks: &HookManager) -> Vec<String> {
    hooks.list().into_iter().filter(|hook| hook.active).map(|hook| hook.id).collect()
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

// --- Defining hooks ---

#[test]
fn hooks_see_all_inputs_and_all_outputs() -> Test {
    let net = net();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (before, after) = (seen.clone(), seen.clone());
    net.manager().register("pre", "mix").hook_call_inputs(move |ctx, call| {
        assert_eq!((ctx.path(), ctx.call(), call.outputs.len()), ("mix", 0, 0));
        before.lock().unwrap().push(call.inputs.iter().map(numbers).collect::<Vec<_>>());
        Ok(None)
    })?;
    net.manager().register("post", "mix").hook_call(move |_, call| {
        assert_eq!(call.input_names, ["in", "in.1"]);
        assert_eq!(call.output_names, ["out", "out.1"]);
        after.lock().unwrap().push(call.inputs.iter().chain(call.outputs).map(numbers).collect());
        Ok(None)
    })?;
    assert_eq!(output(&net), [2., 4.]);
    let (x, sum, zero) = (vec![1., 2.], vec![2., 4.], vec![0., 0.]);
    assert_eq!(*seen.lock().unwrap(), [vec![x.clone(), x.clone()], vec![x.clone(), x, sum, zero]]);
    Ok(())
}

#[test]
fn an_optional_input_that_is_there_is_seen() -> Test {
    let net = net();
    let names = Log::default();
    let log = names.clone();
    net.manager().register("names", "mix").hook_call(move |_, call| {
        log.note(call.input_names.join(" "));
        Ok(None)
    })?;
    let (a, b) = (row(&[1., 1.]), row(&[2., 2.]));
    net.run(|m| m.mix.forward(&a, &b, Some(&b)))?;
    net.run(|m| m.mix.forward(&a, &b, None))?;
    assert_eq!(names.take(), ["in in.1 in.2", "in in.1"]);
    Ok(())
}

#[test]
fn a_forward_hook_may_replace_some_of_the_outputs() -> Test {
    let net = net();
    net.manager().register("set", "mix").hook_call(|_, call| {
        let mut outputs = call.outputs.to_vec();
        outputs[1] = (&outputs[1] + 10.)?;
        Ok(Some(outputs))
    })?;
    assert_eq!(output(&net), [12., 14.]);
    Ok(())
}

#[test]
fn a_pre_hook_may_replace_some_of_the_inputs() -> Test {
    let net = net();
    net.manager()
        .register("swap", "mix")
        .hook_call_inputs(|_, call| Ok(Some(vec![call.inputs[0].clone(), (&call.inputs[1] * 3.)?])))?;
    let run = net.plan().cache(["mix:in", "mix:in.1"])?.run(|m| m.forward(&input()))?;
    // (x + 3x) + (x - 3x)
    assert_eq!(numbers(&run.output), [2., 4.]);
    assert_eq!(numbers(&run.cache["mix:in"]), [1., 2.]);
    assert_eq!(numbers(&run.cache["mix:in.1"]), [3., 6.]);
    Ok(())
}

#[test]
fn a_layer_of_candle_is_called_with_what_a_pre_hook_returns() -> Test {
    let net = net();
    net.manager()
        .register("shift", "conv2")
        .hook_call_inputs(|_, call| Ok(Some(vec![(&call.inputs[0] + 1.)?])))?;
    let seen = Log::default();
    let log = seen.clone();
    net.manager().register("see", "conv2").hook_call(move |_, call| {
        log.note(format!("{:?} {:?}", numbers(&call.inputs[0]), numbers(&call.outputs[0])));
        Ok(None)
    })?;
    // hidden x, out x + 1: 2x + 1 and -1
    assert_eq!(output(&net), [2., 4.]);
    assert_eq!(seen.take(), ["[2.0, 3.0] [2.0, 3.0]"]);
    Ok(())
}

#[test]
fn hooks_of_single_values_take_inputs_and_outputs_too() -> Test {
    let net = net();
    net.manager().register("out", "conv1").hook(double)?;
    net.manager().register("in", "conv2").hook_inputs(double)?;
    net.manager().register("second", "mix:in.1").hook_inputs(double)?;
    assert_eq!(ids(net.manager()), ["out[conv1]", "in[conv2:in]", "second[mix:in.1]"]);
    // hidden 2x, out 4x, mixed as 2x and 8x: 10x - 6x
    assert_eq!(output(&net), [4., 8.]);
    Ok(())
}

#[test]
fn replacements_chain_in_the_order_of_registration() -> Test {
    let net = net();
    let hooks = net.manager();
    hooks.register("add", "conv1").hook(|_, x| Ok(Some((x + 1.)?)))?;
    hooks.register("double", "conv1").hook_call(|_, call| Ok(Some(vec![(&call.outputs[0] * 2.)?])))?;
    hooks.register("add again", "conv1").hook(|_, x| Ok(Some((x + 1.)?)))?;
    let (_, cache) = net.run_with_cache("conv1", |m| m.forward(&input()))?;
    assert_eq!(numbers(&cache["conv1"]), [5., 7.]);
    Ok(())
}

// --- Order of execution ---

#[test]
fn pre_hooks_come_before_the_module_and_forward_hooks_after_it() -> Test {
    let net = net();
    let log = Log::default();
    let (a, b) = (log.clone(), log.clone());
    net.manager().register("after", ["", "conv*"]).hook(move |ctx, _| {
        a.note(format!("after {}", ctx.path()));
        Ok(None)
    })?;
    net.manager().register("before", ["", "conv*"]).hook_inputs(move |ctx, _| {
        b.note(format!("before {}", ctx.path()));
        Ok(None)
    })?;
    output(&net);
    let order = ["before :in", "before conv1:in", "after conv1", "before conv2:in", "after conv2", "after "];
    assert_eq!(log.take(), order);
    Ok(())
}

// --- Registering hooks ---

#[test]
fn one_hook_on_many_modules() -> Test {
    let net = net();
    let group = net.manager().register("double", ["conv1", "conv2"]).hook(double)?;
    assert_eq!(group.name(), "double");
    assert_eq!(group.ids().collect::<Vec<_>>(), ["double[conv1]", "double[conv2]"]);
    let paths: Vec<_> = (&group).into_iter().map(|handle| handle.path().to_string()).collect();
    assert_eq!(paths, ["conv1", "conv2"]);
    assert_eq!(group.at("conv2")?.category(), HookCategory::Forward);
    // No reference but the manager is needed.
    drop(group);
    assert_eq!(output(&net), [4., 8.]);
    Ok(())
}

#[test]
fn patterns_are_those_of_plans() -> Test {
    let net = net();
    let hooks = net.manager();
    let log = Log::default();
    let see = |log: &Log| {
        let log = log.clone();
        move |ctx: &HookCtx<'_>, _: &Tensor| {
            log.note(ctx.path());
            Ok(None)
        }
    };
    hooks.register("each", "conv1[0, *]").hook(see(&log))?;
    hooks.register("value", ":hidden").hook(see(&log))?;
    hooks.register("parameter", "mix.scale").hook(see(&log))?;
    hooks.register("first call", "conv2#0[:, -1]").hook(see(&log))?;
    hooks.register("second call", "conv2#1").hook(see(&log))?;
    output(&net);
    assert_eq!(log.take(), ["conv1[0, 0]", "conv1[0, 1]", ":hidden", "conv2[:, -1]", "mix.scale"]);
    let fired: Vec<usize> = hooks.list().iter().map(|hook| hook.fired).collect();
    assert_eq!(fired, [2, 1, 1, 1, 0]);
    assert_eq!(hooks.get("first call[conv2#0[:, -1]]")?.path(), "conv2#0[:, -1]");
    Ok(())
}

#[test]
fn registered_hooks_act_in_every_kind_of_run() -> Test {
    let mut net = net();
    let hook = net.manager().register("double", "conv1").hook(double)?;
    let x = input();
    assert_eq!(numbers(&net.run(|m| m.forward(&x))?), [4., 8.]);
    assert_eq!(numbers(&net.plan().run(|m| m.forward(&x))?.output), [4., 8.]);
    assert_eq!(numbers(&net.run_with_cache("conv1", |m| m.forward(&x))?.1["conv1"]), [2., 4.]);
    assert_eq!(numbers(&net.plan().cache("conv1")?.collect(|m| m.forward(&x))?["conv1"]), [2., 4.]);
    let own = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x + 1.)?));
    // The plan's own hook comes after: 2x + 1, not 2(x + 1).
    let (_, cache) = {
        let run = net.plan().hook("conv1", own)?.cache("conv1")?.run(|m| m.forward(&x))?;
        (run.output, run.cache)
    };
    assert_eq!(numbers(&cache["conv1"]), [3., 5.]);
    assert_eq!(numbers(&net.run_with_hooks([("conv1", own)], |m| m.forward(&x))?), [6., 10.]);
    assert_eq!(numbers(&net.scan(|m| m.forward(&x))?.output), [4., 8.]);
    assert_eq!(numbers(&net.plan_mut().run(|m| m.forward(&x))?.output), [4., 8.]);
    assert_eq!(numbers(&net.plan_mut().run(|m| m.forward(&x))?.output), [4., 8.]);
    assert_eq!(
        numbers(
            &net.plan_mut().cache("conv1")?.run(|m| m.forward(&x)).map(|run| (run.output, run.cache))?.1
                ["conv1"]
        ),
        [2., 4.]
    );
    assert_eq!(numbers(&net.plan_mut().cache("conv1")?.collect(|m| m.forward(&x))?["conv1"]), [2., 4.]);
    assert_eq!(hook.handles()[0].fired()?, 11);
    // Not without a run.
    assert_eq!(numbers(&net.forward(&x)?), [2., 4.]);
    Ok(())
}

#[test]
fn a_plan_follows_what_is_registered_between_its_runs() -> Test {
    let net = net();
    let plan = net.plan().cache("conv1")?;
    let at_conv1 =
        || -> hookpoint::Result<_> { Ok(numbers(&plan.run(|m| m.forward(&input()))?.cache["conv1"])) };
    assert_eq!(at_conv1()?, [1., 2.]);
    let hook = net.manager().register("double", "conv1").hook(double)?;
    assert_eq!(at_conv1()?, [2., 4.]);
    hook.deactivate()?;
    assert_eq!(at_conv1()?, [1., 2.]);
    hook.activate()?;
    assert_eq!(at_conv1()?, [2., 4.]);
    hook.remove()?;
    assert_eq!(at_conv1()?, [1., 2.]);
    // What fired is told of the plan's own requests only.
    net.manager().register("double", "conv1").hook(double)?;
    let run = plan.run(|m| m.forward(&input()))?;
    assert_eq!(run.fired().collect::<Vec<_>>(), [(r#"cache("conv1")"#, 1)]);
    Ok(())
}

#[test]
fn a_patched_module_with_a_registered_hook_runs() -> Test {
    let net = net();
    net.manager().register("see", "conv1").hook(|_, _| Ok(None))?;
    let run = net.plan().patch("conv1", &row(&[5., 6.]))?.run(|m| m.forward(&input()))?;
    assert_eq!(run.skipped().count(), 0);
    assert_eq!(numbers(&run.output), [10., 12.]);
    assert_eq!(net.manager().get("see[conv1]")?.fired()?, 1);
    Ok(())
}

// --- Activating hooks ---

#[test]
fn a_hook_can_be_registered_inactive() -> Test {
    let net = net();
    let hooks = net.manager();
    let group = hooks.register("double", "conv1").inactive().hook(double)?;
    assert!(!group.handles()[0].is_active()?);
    assert_eq!(output(&net), [2., 4.]);
    hooks.activate_all();
    assert_eq!(output(&net), [4., 8.]);
    hooks.deactivate_all();
    assert_eq!(output(&net), [2., 4.]);
    Ok(())
}

/// Two hooks and a pre-hook, on two modules each.
fn six() -> hookpoint::Result<Hooked<Net>> {
    let net = net();
    let hooks = net.manager();
    for name in ["a", "b"] {
        hooks.register(name, "conv*").inactive().hook(|_, _| Ok(None))?;
    }
    hooks.register("pre", "conv*").inactive().hook_inputs(|_, _| Ok(None))?;
    Ok(net)
}

#[test]
fn filters_by_module() -> Test {
    let net = six()?;
    let hooks = net.manager();
    assert_eq!(hooks.activate(HookFilter::all().path("conv1")?)?, 3);
    assert_eq!(active(hooks), ["a[conv1]", "b[conv1]", "pre[conv1:in]"]);
    assert_eq!(hooks.activate(HookFilter::all().path(["conv1", "conv2"])?)?, 6);
    assert_eq!(hooks.deactivate(HookFilter::all().path("*2")?)?, 3);
    assert_eq!(active(hooks), ["a[conv1]", "b[conv1]", "pre[conv1:in]"]);
    // With a value, only hooks of that value.
    assert_eq!(hooks.deactivate(HookFilter::all().path("conv1:in")?)?, 1);
    assert_eq!(active(hooks), ["a[conv1]", "b[conv1]"]);
    Ok(())
}

#[test]
fn filters_by_function() -> Test {
    let net = six()?;
    let hooks = net.manager();
    assert_eq!(hooks.activate(HookFilter::all().hook("a"))?, 2);
    assert_eq!(active(hooks), ["a[conv1]", "a[conv2]"]);
    assert_eq!(hooks.activate(HookFilter::all().hook("b").hook("pre"))?, 4);
    assert_eq!(hooks.deactivate(HookFilter::all().hook("a"))?, 2);
    assert_eq!(active(hooks), ["b[conv1]", "b[conv2]", "pre[conv1:in]", "pre[conv2:in]"]);
    Ok(())
}

#[test]
fn filters_by_category() -> Test {
    let net = six()?;
    let hooks = net.manager();
    assert_eq!(hooks.activate(HookCategory::ForwardPre)?, 2);
    assert_eq!(active(hooks), ["pre[conv1:in]", "pre[conv2:in]"]);
    assert_eq!(hooks.activate(HookFilter::from("forward_hook".parse::<HookCategory>()?))?, 4);
    assert_eq!(hooks.deactivate(HookCategory::ForwardPre)?, 2);
    assert_eq!(active(hooks).len(), 4);
    Ok(())
}

#[test]
fn filters_are_combined() -> Test {
    let net = six()?;
    let hooks = net.manager();
    let filter = HookFilter::all().path("conv2")?.hook("a").hook("pre").category(HookCategory::Forward);
    assert_eq!(hooks.activate(&filter)?, 1);
    assert_eq!(active(hooks), ["a[conv2]"]);
    hooks.activate_all();
    assert_eq!(hooks.deactivate(filter.category(HookCategory::ForwardPre))?, 2);
    assert_eq!(active(hooks), ["a[conv1]", "b[conv1]", "b[conv2]", "pre[conv1:in]"]);
    Ok(())
}

// --- Contexts ---

#[test]
fn hooks_are_active_in_a_scope() -> Test {
    let net = net();
    let hooks = net.manager();
    hooks.register("double", "conv1").inactive().hook(double)?;
    {
        let _all = hooks.activated(HookFilter::all())?;
        assert_eq!(output(&net), [4., 8.]);
    }
    assert_eq!(output(&net), [2., 4.]);
    let doubled =
        hooks.scope(HookFilter::all().path("conv1")?.hook("double"), || net.run(|m| m.forward(&input())))?;
    assert_eq!(numbers(&doubled), [4., 8.]);
    assert_eq!(output(&net), [2., 4.]);
    Ok(())
}

#[test]
fn scopes_deactivate_too_or_leave_only_some() -> Test {
    let net = six()?;
    let hooks = net.manager();
    hooks.activate(HookFilter::all().hook("a"))?;
    let seen =
        hooks.scope_without(HookFilter::all().path("conv1")?, || Ok::<_, hookpoint::Error>(active(hooks)))?;
    assert_eq!(seen, ["a[conv2]"]);
    let seen = hooks.scope_only(HookCategory::ForwardPre, || Ok::<_, hookpoint::Error>(active(hooks)))?;
    assert_eq!(seen, ["pre[conv1:in]", "pre[conv2:in]"]);
    assert_eq!(active(hooks), ["a[conv1]", "a[conv2]"]);
    Ok(())
}

#[test]
fn a_scope_does_not_borrow_the_model() -> Test {
    let mut net = net();
    net.manager().register("double", "conv1").inactive().hook(double)?;
    let scope = net.manager().activated(HookFilter::all())?;
    assert_eq!(numbers(&net.plan_mut().run(|m| m.forward(&input()))?.output), [4., 8.]);
    scope.end();
    assert_eq!(numbers(&net.plan_mut().run(|m| m.forward(&input()))?.output), [2., 4.]);
    Ok(())
}

// --- HookFunction and HookHandle objects ---

#[test]
fn a_handle_switches_its_hook() -> Test {
    let net = net();
    let hooks = net.manager();
    let group = hooks.register("double", ["conv1", "conv2"]).hook(double)?;
    let handle = hooks.hook("double")?.at("conv1")?.clone();
    assert_eq!((handle.id(), handle.hook_name(), handle.path()), ("double[conv1]", "double", "conv1"));
    handle.deactivate()?;
    assert_eq!(active(hooks), ["double[conv2]"]);
    assert!(!handle.is_active()? && group.at("conv2")?.is_active()?);
    handle.activate()?;
    assert!(handle.is_active()?);
    group.deactivate()?;
    assert_eq!(active(hooks).len(), 0);
    Ok(())
}

#[test]
fn a_hook_can_be_put_on_more_modules_later() -> Test {
    let net = net();
    let hooks = net.manager();
    hooks.register("double", "conv1").hook_inputs(double)?;
    let more = hooks.extend("double", "conv2")?;
    assert_eq!(more.ids().collect::<Vec<_>>(), ["double[conv2:in]"]);
    assert_eq!(hooks.hook("double")?.handles().len(), 2);
    assert_eq!(output(&net), [4., 8.]);
    Ok(())
}

// --- Looking up registered hooks ---

#[test]
fn hooks_are_looked_up_by_id_name_and_path() -> Test {
    let net = six()?;
    let hooks = net.manager();
    assert_eq!(hooks.get("b[conv2]")?.hook_name(), "b");
    assert_eq!(hooks.hook("pre")?.ids().collect::<Vec<_>>(), ["pre[conv1:in]", "pre[conv2:in]"]);
    let at: Vec<_> = hooks.hooks_at("conv1")?.iter().map(|handle| handle.id().to_string()).collect();
    assert_eq!(at, ["a[conv1]", "b[conv1]", "pre[conv1:in]"]);
    assert!(hooks.is_hooked("conv1")? && !hooks.is_hooked("mix")? && hooks.is_hooked("**")?);
    assert_eq!(hooks.names(), ["a", "b", "pre"]);
    assert_eq!(hooks.len(), 6);
    Ok(())
}

#[test]
fn names_that_clash_are_numbered() -> Test {
    let net = net();
    let hooks = net.manager();
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(hooks.register("see", "conv1").hook(|_, _| Ok(None))?.name().to_string());
    }
    names.push(hooks.register("see_1", "conv2").hook(|_, _| Ok(None))?.name().to_string());
    assert_eq!(names, ["see", "see_1", "see_2", "see_1_1"]);
    assert_eq!(ids(hooks), ["see[conv1]", "see_1[conv1]", "see_2[conv1]", "see_1_1[conv2]"]);
    // A name that is free again is given out again.
    hooks.remove_hook("see_1")?;
    assert_eq!(hooks.register("see", "conv1").hook(|_, _| Ok(None))?.name(), "see_1");
    Ok(())
}

#[test]
fn the_list_is_a_table() -> Test {
    let net = net();
    let hooks = net.manager();
    hooks.register("double", ["conv1", ""]).hook(double)?;
    hooks.register("all inputs", "mix").inactive().hook_call_inputs(|_, _| Ok(None))?;
    output(&net);
    let table = "\
order  id               path    category          active  fired
    0  double[conv1]    conv1   forward_hook      yes         1
    1  double[]         (root)  forward_hook      yes         1
    2  all inputs[mix]  mix     forward_pre_hook  no          0
";
    assert_eq!(hooks.list().to_string(), table);
    let unfired: Vec<_> = hooks.unfired().into_iter().map(|hook| hook.id).collect();
    assert_eq!(unfired, ["all inputs[mix]"]);
    Ok(())
}

// --- Removing hooks ---

#[test]
fn hooks_are_removed_by_function_module_or_handle() -> Test {
    let net = six()?;
    let hooks = net.manager();
    hooks.get("a[conv1]")?.remove()?;
    assert_eq!(ids(hooks), ["a[conv2]", "b[conv1]", "b[conv2]", "pre[conv1:in]", "pre[conv2:in]"]);
    assert_eq!(hooks.remove_hook("b")?, 2);
    assert_eq!(ids(hooks), ["a[conv2]", "pre[conv1:in]", "pre[conv2:in]"]);
    assert_eq!(hooks.remove_at("conv2")?, 2);
    assert_eq!(ids(hooks), ["pre[conv1:in]"]);
    // What is removed cannot be activated any more.
    assert!(matches!(
        hooks.activate(HookFilter::all().hook("b")).unwrap_err().kind(),
        ErrorKind::UnknownHook { .. }
    ));
    hooks.activate_all();
    assert_eq!(active(hooks), ["pre[conv1:in]"]);
    assert_eq!(hooks.clear(), 1);
    assert!(hooks.is_empty());
    Ok(())
}
