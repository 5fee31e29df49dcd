//! Every `unsafe` line of the file above, with values whose memory a checker can watch. These tests run
//! under valgrind, AddressSanitizer and, where it is installed, Miri: see `scripts/check-unsafe`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};

use candle_core::{Device, Tensor, Var};
use candle_nn::{Linear, Module};

use super::lifetimes::has_no_lifetimes;
use super::*;
use crate::run::{
    current, current_pass, with_pass, with_run, Audience, BackwardPass, Dispatch, Learned, Listens, Order,
    RunState, Tape,
};
use crate::tree::{AutoHook, ByModule, ByNamedModule, Tree, Visitor};

fn tensor(values: &[f32]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

mod values_of_unknown_type {
    use super::*;

    fn tensor_in<T: ?Sized>(value: &T) -> Option<Vec<f32>> {
        Erased::of(value).tensor().map(numbers)
    }

    #[test]
    fn a_slice_is_as_long_as_it_was() {
        let all = [tensor(&[1.]), tensor(&[2., 3.]), tensor(&[4.])];
        let found = |slice: Option<Vec<Tensor>>| slice.map(|all| all.iter().map(numbers).collect::<Vec<_>>());
        assert_eq!(found(Erased::of(&all[1..]).slice()), Some(vec![vec![2., 3.], vec![4.]]));
        assert_eq!(found(Erased::of::<[Tensor]>(&[]).slice()), Some(Vec::new()));
        let references = [&all[2], &all[0]];
        assert_eq!(found(Erased::of(&references[..]).slice()), Some(vec![vec![4.], vec![1.]]));
        assert_eq!(found(Erased::of(&all[0]).slice()), None);
        assert_eq!(found(Erased::of(&[1f32, 2.][..]).slice()), None);
    }

    #[test]
    fn a_tensor_is_found_behind_references_options_arcs_and_vars() {
        let x = tensor(&[1., 2.]);
        let expected = Some(vec![1., 2.]);
        let mut y = x.clone();
        assert_eq!(tensor_in(&x), expected);
        assert_eq!(tensor_in(&&x), expected);
        assert_eq!(tensor_in(&&&x), expected);
        assert_eq!(tensor_in(&&mut y), expected);
        assert_eq!(tensor_in(&Some(x.clone())), expected);
        assert_eq!(tensor_in(&&Some(x.clone())), expected);
        assert_eq!(tensor_in(&Some(&x)), expected);
        assert_eq!(tensor_in(&Arc::new(x.clone())), expected);
        assert_eq!(tensor_in(&Var::from_tensor(&x).unwrap()), expected);
    }

    #[test]
    fn where_there_is_no_tensor_none_is_found() {
        assert_eq!(tensor_in(&None::<Tensor>), None);
        assert_eq!(tensor_in(&None::<&Tensor>), None);
        assert_eq!(tensor_in(&1usize), None);
        assert_eq!(tensor_in("text"), None);
        assert_eq!(tensor_in(&[1u8, 2][..]), None);
        assert_eq!(tensor_in(&()), None);
        let dynamic: &dyn std::fmt::Debug = &tensor(&[1.]);
        assert_eq!(tensor_in(dynamic), None);
    }

    #[test]
    fn what_is_found_outlives_the_look() {
        let x = tensor(&[1., 2.]);
        let found = {
            let erased = Erased::of(&x);
            let copy = erased;
            copy.tensor()
        };
        assert_eq!(found.map(numbers), Some(vec![1., 2.]));
    }

    #[test]
    fn types_that_differ_only_in_a_lifetime_have_one_id_and_are_not_cast() {
        let text = String::from("short");
        let short = std::borrow::Cow::Borrowed(text.as_str());
        let long = std::borrow::Cow::Borrowed("static");
        assert_eq!(Erased::of(&short).type_id(), Erased::of(&long).type_id());
        assert!(Erased::of(&short).get::<String>().is_none());
    }

    #[test]
    fn a_value_is_replaced_in_place_and_the_old_one_is_dropped() {
        let mut x = tensor(&[1.]);
        let mut erased = ErasedMut::of(&mut x);
        assert!(erased.get_mut::<Option<Tensor>>().is_none());
        *erased.get_mut::<Tensor>().unwrap() = tensor(&[2.]);
        assert_eq!(erased.shared().tensor().map(numbers), Some(vec![2.]));
        *erased.reborrow().get_mut::<Tensor>().unwrap() = tensor(&[3.]);
        assert_eq!(numbers(&x), [3.]);

        let mut list = vec![tensor(&[1.]), tensor(&[2.])];
        ErasedMut::of(&mut list).get_mut::<Vec<Tensor>>().unwrap().push(tensor(&[3.]));
        assert_eq!(list.len(), 3);
    }

    #[test]
    fn a_result_can_be_turned_into_an_error() {
        let mut result: candle_core::Result<Tensor> = Ok(tensor(&[1.]));
        let mut erased = ErasedMut::of(&mut result);
        *erased.get_mut::<candle_core::Result<Tensor>>().unwrap() = Err(candle_core::Error::msg("no"));
        assert!(result.is_err());
    }

    struct Output {
        logits: Tensor,
        name: String,
    }

    // SAFETY: it has no lifetimes.
    unsafe impl Derived for Output {
        fn copy(&self) -> Option<AnyValue> {
            None
        }
    }

    #[test]
    fn a_derived_type_is_reached_through_its_stand_in() {
        let mut output = Output { logits: tensor(&[1.]), name: "kept".to_string() };
        let mut erased = ErasedMut::of(&mut output);
        erased.get_mut::<OfDerived<Output>>().unwrap().0.logits = tensor(&[5.]);
        assert_eq!(numbers(&output.logits), [5.]);
        assert_eq!(output.name, "kept");
        assert!(ErasedMut::of(&mut 1u32).get_mut::<OfDerived<Output>>().is_none());
    }

    #[test]
    fn a_value_moves_between_equal_types_once() {
        let x = tensor(&[1., 2.]);
        let result: candle_core::Result<Tensor> = Ok(x);
        let same: candle_core::Result<Tensor> = same_type(result).unwrap();
        assert_eq!(numbers(&same.unwrap()), [1., 2.]);
        // What is refused is dropped, not leaked.
        let refused: Option<Tensor> = same_type(Ok::<Tensor, candle_core::Error>(tensor(&[1.])));
        assert!(refused.is_none());
        let text: Option<String> = same_type(String::from("moved"));
        assert_eq!(text.as_deref(), Some("moved"));
    }
}

mod slots {
    use super::*;

    #[test]
    fn a_new_argument_is_handed_out_in_the_place_of_the_old() {
        let old = tensor(&[1.]);
        let mut slot = Slot::new();
        let given: &Tensor = slot.put(&old, tensor(&[2.]));
        assert_eq!(numbers(given), [2.]);
        assert_eq!(numbers(&old), [1.]);
    }

    #[test]
    fn an_optional_argument_stays_optional() {
        let old = Some(tensor(&[1.]));
        let mut slot = Slot::new();
        let given: &Option<Tensor> = slot.put(&old, tensor(&[2.]));
        assert_eq!(given.as_ref().map(numbers), Some(vec![2.]));
    }

    #[test]
    fn anything_else_is_given_back() {
        let mut slot = Slot::new();
        assert_eq!(slot.put("text", tensor(&[2.])), "text");
        assert_eq!(slot.put(&7usize, tensor(&[2.])), &7);
    }

    #[test]
    fn a_slot_that_is_filled_again_drops_what_it_held() {
        let old = tensor(&[1.]);
        let mut slot = Slot::new();
        slot.put(&old, tensor(&[2.]));
        assert_eq!(numbers(slot.put(&old, tensor(&[3.]))), [3.]);
    }

    #[test]
    fn a_value_of_a_known_type_is_handed_out_in_the_place_of_the_old() {
        let old = vec![tensor(&[1.])];
        let mut slot = Slot::new();
        let new = AnyValue::of(&vec![tensor(&[2.]), tensor(&[3.])]);
        let given: &Vec<Tensor> = slot.put_any(&old, new, PlainId::of::<Vec<Tensor>>());
        assert_eq!(given.iter().map(numbers).collect::<Vec<_>>(), [[2.], [3.]]);
        let mut text = Slot::new();
        assert_eq!(
            text.put_any(&"old".to_string(), AnyValue::of(&"new".to_string()), PlainId::of::<String>()),
            "new"
        );
    }

    #[test]
    fn a_value_outlives_whoever_gave_it() {
        let old = vec![tensor(&[1.])];
        let mut slot = Slot::new();
        let given: &Vec<Tensor> = {
            let new = AnyValue::of(&vec![tensor(&[2.])]);
            let other = new.clone();
            let given = slot.put_any(&old, new, PlainId::of::<Vec<Tensor>>());
            drop(other);
            given
        };
        assert_eq!(given.iter().map(numbers).collect::<Vec<_>>(), [[2.]]);
    }

    #[test]
    fn a_value_of_another_type_or_of_one_that_nobody_knows_is_not_handed_out() {
        #[derive(Clone, Debug, PartialEq)]
        struct Unknown(i32);
        let mut slot = Slot::new();
        assert_eq!(slot.put_any(&7usize, AnyValue::of(&7u32), PlainId::of::<usize>()), &7);
        assert_eq!(slot.put_any(&Unknown(1), AnyValue::of(&Unknown(2)), PlainId::of::<usize>()), &Unknown(1));
        assert_eq!(slot.put_any("text", AnyValue::of(&"new".to_string()), PlainId::of::<String>()), "text");
    }
}

mod kept {
    use super::*;

    #[test]
    fn each_stays_where_it_is() {
        let old = tensor(&[1.]);
        let kept = Kept::new();
        let given: Vec<&Tensor> = (0..1000).map(|n| kept.put(&old, tensor(&[n as f32]))).collect();
        let found: Vec<f32> = given.iter().flat_map(|tensor| numbers(tensor)).collect();
        assert_eq!(found, (0..1000).map(|n| n as f32).collect::<Vec<_>>());
    }

    #[test]
    fn many_are_dropped_without_a_deep_stack() {
        // As a list they are made one by one, which takes the square of the time; so they are linked by hand.
        let one = tensor(&[1.]);
        let mut all = Kept::new();
        for _ in 0..200_000 {
            let next = std::mem::take(&mut all);
            all = Kept(std::cell::OnceCell::from(Box::new(KeptTensor { tensor: one.clone(), next })));
        }
        drop(all);
    }

    #[test]
    fn anything_but_a_tensor_is_given_back() {
        let kept = Kept::new();
        assert_eq!(kept.put("text", tensor(&[2.])), "text");
        assert!(kept.put(&None::<Tensor>, tensor(&[2.])).is_none());
    }
}

mod receivers {
    use super::*;

    fn linear() -> Linear {
        Linear::new(Tensor::new(&[[2f32]], &Device::Cpu).unwrap(), None)
    }

    fn all<T: 'static, C: Caller<T>>() -> Vec<(TypeId, Receiver)> {
        let mut all = super::super::receivers::<T, C>();
        let itself = receiver_itself::<T, C>();
        all.retain(|(of, _)| *of != itself.0);
        all.push(itself);
        all
    }

    /// Finds the module behind `value` and calls it.
    fn reached<T: 'static, C: Caller<T>, V: ?Sized>(value: &V) -> (Option<usize>, Option<Vec<f32>>) {
        let erased = Erased::of(value);
        let all = all::<T, C>();
        let Some((_, receiver)) = all.iter().find(|(of, _)| *of == erased.type_id()) else {
            panic!("not a receiver: {}", std::any::type_name::<V>());
        };
        let module = receiver.module(erased);
        assert!(module.is_none_or(|module| module.type_id() == TypeId::of::<T>()));
        let result = receiver.call(erased, &Tensor::new(&[[3f32]], &Device::Cpu).unwrap(), false);
        (module.map(|module| module.address()), result.map(|result| numbers(&result.unwrap())))
    }

    fn assert_reached<V: ?Sized>(value: &V, module: &Linear) {
        let address = ptr::from_ref(module) as usize;
        assert_eq!(reached::<Linear, ByModule, V>(value), (Some(address), Some(vec![6.])));
    }

    #[test]
    fn a_module_is_reached_through_references() {
        let mut m = linear();
        let n: *const Linear = &m;
        assert_reached(&m, &m);
        assert_reached(&&m, &m);
        assert_reached(&&&m, &m);
        let address = n as usize;
        let through = |found: (Option<usize>, Option<Vec<f32>>)| {
            assert_eq!(found, (Some(address), Some(vec![6.])));
        };
        let mut exclusive = &mut m;
        through(reached::<Linear, ByModule, _>(&exclusive));
        through(reached::<Linear, ByModule, _>(&&exclusive));
        through(reached::<Linear, ByModule, _>(&&mut exclusive));
        let mut shared = &m;
        through(reached::<Linear, ByModule, _>(&&mut shared));
    }

    #[test]
    fn a_module_is_reached_through_boxes_and_counted_pointers() {
        let mut boxed = Box::new(linear());
        assert_reached(&boxed, &boxed);
        assert_reached(&&boxed, &boxed);
        let address = ptr::from_ref(&*boxed) as usize;
        assert_eq!(reached::<Linear, ByModule, _>(&&mut boxed).0, Some(address));
        let mut arc = Arc::new(linear());
        assert_reached(&arc, &arc);
        assert_reached(&&arc, &arc);
        let address = ptr::from_ref(&*arc) as usize;
        assert_eq!(reached::<Linear, ByModule, _>(&&mut arc).0, Some(address));
        let rc = Rc::new(linear());
        assert_reached(&rc, &rc);
        assert_reached(&&rc, &rc);
    }

    #[test]
    fn a_module_is_reached_through_guards() {
        let cell = RefCell::new(linear());
        let guard = cell.borrow();
        assert_reached(&guard, &guard);
        drop(guard);
        let guard = cell.borrow_mut();
        assert_reached(&guard, &guard);
        let lock = Mutex::new(linear());
        let guard = lock.lock().unwrap();
        assert_reached(&guard, &guard);
        let lock = RwLock::new(linear());
        let guard = lock.read().unwrap();
        assert_reached(&guard, &guard);
        drop(guard);
        #[allow(clippy::readonly_write_lock)] // The guard itself is what is tested.
        let guard = lock.write().unwrap();
        assert_reached(&guard, &guard);
    }

    #[test]
    fn a_module_is_reached_through_options() {
        let mut m = linear();
        assert_reached(&Some(&m), &m);
        assert_reached(&&Some(&m), &m);
        let address = ptr::from_ref(&m) as usize;
        assert_eq!(reached::<Linear, ByModule, _>(&Some(&mut m)).0, Some(address));
        let (boxed, arc) = (Box::new(linear()), Arc::new(linear()));
        assert_reached(&Some(&boxed), &boxed);
        assert_reached(&&Some(&boxed), &boxed);
        assert_reached(&Some(&arc), &arc);
        assert_reached(&&Some(&arc), &arc);
    }

    #[test]
    fn the_box_that_holds_a_module_is_found_behind_references() {
        let (boxed, arc, rc) = (Box::new(Nothing), Arc::new(Nothing), Rc::new(Nothing));
        fn holder<V>(value: &V) -> Option<usize> {
            let erased = Erased::of(value);
            let all = all::<Nothing, ByModule>();
            let (_, receiver) = all.iter().find(|(of, _)| *of == erased.type_id()).expect("a receiver");
            receiver.holder(erased).map(|holder| holder.address())
        }
        fn address<B>(holder: &B) -> Option<usize> {
            Some(ptr::from_ref(holder) as usize)
        }
        assert_eq!(holder(&&boxed), address(&boxed));
        assert_eq!(holder(&Some(&boxed)), address(&boxed));
        assert_eq!(holder(&&Some(&boxed)), address(&boxed));
        assert_eq!(holder(&&arc), address(&arc));
        assert_eq!(holder(&Some(&arc)), address(&arc));
        assert_eq!(holder(&&Some(&arc)), address(&arc));
        assert_eq!(holder(&&rc), address(&rc));
        // Where the receiver is the box itself, or there is none.
        assert_eq!(holder(&boxed), None);
        assert_eq!(holder(&Nothing), None);
        assert_eq!(holder(&None::<&Box<Nothing>>), None);
        let other = tensor(&[1.]);
        for (_, receiver) in all::<Linear, ByModule>() {
            assert!(receiver.holder(Erased::of(&other)).is_none());
        }
    }

    #[test]
    fn nothing_is_reached_through_an_empty_option() {
        assert_eq!(reached::<Linear, ByModule, _>(&None::<&Linear>), (None, None));
        assert_eq!(reached::<Linear, ByModule, _>(&None::<&mut Linear>), (None, None));
        assert_eq!(reached::<Linear, ByModule, _>(&None::<&Box<Linear>>), (None, None));
    }

    #[test]
    fn a_receiver_of_another_type_is_refused() {
        let other = tensor(&[1.]);
        for (of, receiver) in all::<Linear, ByModule>() {
            assert!(of != Erased::of(&other).type_id());
            assert!(receiver.module(Erased::of(&other)).is_none());
            assert!(receiver.call(Erased::of(&other), &other, false).is_none());
        }
    }

    struct Nothing;

    impl Module for Nothing {
        fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
            Ok(x.clone())
        }
    }

    #[test]
    fn modules_of_size_zero_can_be_called() {
        assert_eq!(reached::<Nothing, ByModule, _>(&Nothing).1, Some(vec![3.]));
        assert_eq!(reached::<Nothing, ByModule, _>(&Box::new(Nothing)).1, Some(vec![3.]));
        assert_eq!(reached::<Nothing, ByModule, _>(&Arc::new(Nothing)).1, Some(vec![3.]));
    }

    #[test]
    fn trait_objects_are_called_through_their_box_and_not_by_themselves() {
        let boxed: Box<dyn Module> = Box::new(linear());
        let entries = super::super::receivers::<dyn Module, ByNamedModule>();
        let x = Tensor::new(&[[3f32]], &Device::Cpu).unwrap();
        let call = |receiver: Erased<'_>| {
            let entry = entries.iter().find(|(of, _)| *of == receiver.type_id()).map(|(_, entry)| entry);
            let entry = entry.expect("a receiver");
            let found = entry.module(receiver).expect("a module").address();
            (found, entry.call(receiver, &x, false).map(|result| numbers(&result.unwrap())))
        };
        let address = ptr::from_ref(&*boxed).cast::<()>() as usize;
        assert_eq!(call(Erased::of(&boxed)), (address, Some(vec![6.])));
        assert_eq!(call(Erased::of(&&boxed)), (address, Some(vec![6.])));
        assert_eq!(call(Erased::of(&&*boxed)), (address, Some(vec![6.])));
        // Half of a trait object's pointer is not enough to call it.
        assert_eq!(call(Erased::of(&*boxed)), (address, None));
    }

    #[test]
    fn modules_that_borrow_are_called_whatever_their_lifetime() {
        let scale = 2f64;
        let borrowing = candle_nn::Func::new(|x| x.affine(2., 0.));
        let entries = super::super::receivers::<candle_nn::Func<'static>, ByNamedModule>();
        let local = &borrowing;
        let erased = Erased::of(&local);
        let (_, entry) = entries.iter().find(|(of, _)| *of == erased.type_id()).unwrap();
        let result = entry.call(erased, &tensor(&[scale as f32]), false).unwrap().unwrap();
        assert_eq!(numbers(&result), [4.]);
    }

    /// A module where the text lives for ever.
    struct Leaf<'a>(&'a str);

    impl Module for Leaf<'static> {
        fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
            x.affine(self.0.len() as f64, 0.)
        }
    }

    struct Holds(Leaf<'static>);

    impl AutoHook for Holds {
        fn visit(&self, visitor: &mut Visitor<'_>) {
            visitor.module(self, |visitor| visitor.leaf::<_, ByModule>(&self.0));
        }
    }

    /// Runs `f` with a model that can be walked over.
    fn with_model<M: AutoHook, T>(model: &M, f: impl FnOnce() -> T) -> T {
        super::with_model(&|address, module| Tree::of(model).has_leaf_at(address, module), f)
    }

    fn called<V: ?Sized>(value: &V) -> Option<Vec<f32>> {
        let erased = Erased::of(value);
        let (_, entry) =
            all::<Leaf<'static>, ByModule>().into_iter().find(|(of, _)| *of == erased.type_id())?;
        assert!(entry.module(erased).is_some());
        let result = entry.call(erased, &tensor(&[1.]), false);
        assert_eq!(result.is_some(), entry.may_call(erased));
        result.map(|result| numbers(&result.unwrap()))
    }

    #[test]
    fn a_module_that_may_have_another_lifetime_is_called_only_where_the_model_holds_it() {
        let text = String::from("short-lived");
        let short = Leaf(&text);
        let holds = Holds(Leaf("ever"));
        let look = || {
            let guard = std::sync::Mutex::new(Leaf(&text));
            let found = [
                called(&short),
                called(&&short),
                called(&Box::new(Leaf(&text))),
                called(&Some(&short)),
                called(&guard.lock().unwrap()),
            ];
            assert_eq!(found, [const { None }; 5]);
            (called(&holds.0), called(&&holds.0), called(&Some(&holds.0)))
        };
        assert_eq!(look(), (None, None, None));
        let four = || Some(vec![4.]);
        assert_eq!(with_model(&holds, look), (four(), four(), four()));
        assert_eq!(look(), (None, None, None));
        // Nothing is known of the model in a pause, nor of one whose run is around another.
        with_model(&holds, || paused(|| assert_eq!(called(&holds.0), None)));
        with_model(&Holds(Leaf("other")), || {
            assert_eq!(called(&holds.0), None);
            with_model(&holds, || assert_eq!(called(&holds.0), four()));
            assert_eq!(called(&holds.0), None);
        });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            with_model(&holds, || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(called(&holds.0), None);
    }

    #[test]
    fn a_name_tells_whether_a_type_has_lifetimes() {
        fn free<T: ?Sized>() -> bool {
            has_no_lifetimes(std::any::type_name::<T>())
        }
        // Compilers before 1.92 do not tell, and nothing is taken for free of lifetimes.
        let tells = std::any::type_name::<Leaf<'static>>().contains('\'');
        assert_eq!(
            [free::<Linear>(), free::<Nothing>(), free::<Vec<Box<Linear>>>(), free::<[u8; 3]>()],
            [tells; 4]
        );
        type Alias = Leaf<'static>;
        fn closure(text: &str) -> bool {
            fn of<T>(_: &T) -> bool {
                free::<Vec<T>>()
            }
            of(&|| text.len())
        }
        let hidden = [
            free::<Leaf<'static>>(),
            free::<Alias>(),
            free::<Vec<Option<Leaf<'static>>>>(),
            free::<&'static str>(),
            free::<Vec<&'static Linear>>(),
            free::<std::borrow::Cow<'static, str>>(),
            free::<Box<dyn Module>>(),
            free::<fn(&str) -> &str>(),
            free::<fn() -> Linear>(),
            closure("text"),
        ];
        assert_eq!(hidden, [false; 10]);
    }
}

/// The same without tensors, modules and runs.
mod plain_types {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    #[test]
    fn a_value_is_looked_at_and_replaced_by_its_type() {
        let (text, number) = ("a".to_string(), 7u32);
        assert_eq!(Erased::of(&text).get::<String>().map(String::as_str), Some("a"));
        assert_eq!(Erased::of(&&&text).get::<String>().map(String::as_str), Some("a"));
        assert_eq!(Erased::of(&number).get::<String>(), None);
        assert_eq!(Erased::of(&number).get::<u32>(), Some(&7));
        // As large, and another type.
        assert_eq!(Erased::of(&number).get::<i32>(), None);
        let mut list = vec![Some("a".to_string())];
        ErasedMut::of(&mut list).get_mut::<Vec<Option<String>>>().unwrap().push(None);
        assert_eq!(list.len(), 2);
        assert!(ErasedMut::of(&mut list).get_mut::<Vec<String>>().is_none());
        assert_eq!(same_type::<_, String>("moved".to_string()).as_deref(), Some("moved"));
        assert_eq!(same_type::<_, u64>("refused".to_string()), None);
        let mut slot = Slot::new();
        let new = AnyValue::of(&vec!["new".to_string()]);
        let known = PlainId::of::<Vec<String>>();
        assert_eq!(*slot.put_any(&vec!["old".to_string()], new, known), ["new"]);
    }

    #[test]
    fn a_slot_gives_nothing_of_a_type_that_is_not_the_known_one() {
        let new = || AnyValue::of(&7u64);
        let mut slot = Slot::new();
        assert_eq!(slot.put_any(&1u64, new(), PlainId::of::<usize>()), &1);
        assert_eq!(slot.put_any(&1usize, new(), PlainId::of::<usize>()), &1);
        assert_eq!(slot.put_any(&1u64, new(), PlainId::of::<(u32, u32)>()), &1);
    }

    struct Text<'a>(&'a str);

    struct OfText;

    impl Borrows for OfText {
        type With<'a> = Text<'a>;
    }

    thread_local! {
        static TEXT: Current<OfText> = const { Current::new() };
    }

    fn now() -> Option<String> {
        Current::get(&TEXT, |text| text.0.to_string())
    }

    fn with<T>(text: &str, f: impl FnOnce() -> T) -> T {
        // On the heap, so that a checker sees whether it is looked at too late.
        let own = text.to_string();
        Current::with(&TEXT, &Text(&own), f)
    }

    #[test]
    fn something_borrowed_is_current_for_its_time() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(now(), None);
        with("outer", || {
            assert_eq!(now(), some("outer"));
            with("inner", || assert_eq!(now(), some("inner")));
            paused(|| {
                assert_eq!(now(), None);
                with("in a pause", || {
                    assert_eq!(now(), some("in a pause"));
                    paused(|| assert_eq!(now(), None));
                    assert_eq!(now(), some("in a pause"));
                });
                assert_eq!(now(), None);
            });
            assert_eq!(now(), some("outer"));
            let caught = catch_unwind(AssertUnwindSafe(|| with("lost", || paused(|| panic!("on purpose")))));
            assert!(caught.is_err());
            assert_eq!(now(), some("outer"));
            assert_eq!(std::thread::spawn(now).join().unwrap(), None);
        });
        assert_eq!(now(), None);
    }
}

mod the_current_run {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// Gives a run to `f`, whose tree, plan and lessons end with it.
    fn with_state<T>(f: impl FnOnce(&RunState<'_>) -> T) -> T {
        let (tree, learned) = (Tree::default(), Learned::default());
        let dispatch = Dispatch::new(&tree, &[]);
        let audience = Audience::default();
        let (tree, dispatch, audience) = (&tree, &dispatch, &audience);
        let order =
            Order { tree, requests: &[], registered: 0, dispatch, schedule: None, audience, nudge: None };
        let state = RunState::new(&order, Listens::NOBODY, &learned, Tape::Off);
        f(&state)
    }

    fn current_address() -> Option<usize> {
        current(|state| ptr::from_ref(state) as usize)
    }

    #[test]
    fn a_run_is_current_inside_and_not_outside() {
        assert!(!active());
        with_state(|state| {
            assert!(!active());
            let inside = with_run(state, || (active(), current_address()));
            assert_eq!(inside, (true, Some(ptr::from_ref(state) as usize)));
        });
        assert!(!active());
        assert_eq!(current_address(), None);
    }

    #[test]
    fn runs_nest_and_a_pause_hides_them() {
        with_state(|outer| {
            with_state(|inner| {
                with_run(outer, || {
                    let before = current_address();
                    paused(|| {
                        assert!(!active());
                        with_run(inner, || assert_ne!(current_address(), before));
                        assert!(!active());
                    });
                    assert_eq!(current_address(), before);
                });
            });
        });
        assert!(!active());
    }

    #[test]
    fn a_panic_ends_the_run() {
        let caught =
            catch_unwind(AssertUnwindSafe(|| with_state(|state| with_run(state, || panic!("boom")))));
        assert!(caught.is_err());
        assert!(!active());
    }

    #[test]
    fn a_panic_in_a_pause_goes_back_to_the_run_around_it() {
        with_state(|state| {
            with_run(state, || {
                let caught = catch_unwind(|| paused(|| panic!("boom")));
                assert!(caught.is_err());
                assert_eq!(current_address(), Some(ptr::from_ref(state) as usize));
            });
        });
    }

    #[test]
    fn a_backward_pass_is_there_for_its_time_and_hides_the_run() {
        let nobody = crate::run::Audience::default();
        let pass = || BackwardPass::new(&[], 0, crate::run::Taps::default(), &nobody);
        let address = || current_pass(|pass| ptr::from_ref(pass) as usize);
        with_state(|state| {
            with_run(state, || {
                let (outer, inner) = (pass(), pass());
                with_pass(&outer, || {
                    assert!(!active());
                    assert_eq!(address(), Some(ptr::from_ref(&outer) as usize));
                    // What a hook does is neither hooked nor part of the pass.
                    paused(|| {
                        assert_eq!(address(), None);
                        with_pass(&inner, || assert_eq!(address(), Some(ptr::from_ref(&inner) as usize)));
                        with_run(state, || assert_eq!(address(), None));
                    });
                    let caught = catch_unwind(AssertUnwindSafe(|| with_pass(&inner, || panic!("boom"))));
                    assert!(caught.is_err());
                    assert_eq!(address(), Some(ptr::from_ref(&outer) as usize));
                });
                assert!(active());
                assert_eq!(address(), None);
            });
        });
    }

    #[test]
    fn threads_have_runs_of_their_own() {
        with_state(|state| {
            with_run(state, || {
                let elsewhere = std::thread::spawn(active).join().unwrap();
                assert!(!elsewhere);
                assert!(active());
            });
        });
    }
}

#[test]
fn a_counting_allocator_hands_on_what_it_is_asked() {
    use std::alloc::System;
    let _alone = super::allocated::COUNTING.lock().unwrap();
    let counting = CountingAllocator::new(System);
    let (small, large) =
        (Layout::from_size_align(64, 16).unwrap(), Layout::from_size_align(4096, 16).unwrap());
    // SAFETY: layouts are not empty, and every pointer is used with the layout that it was made with.
    unsafe {
        let before = crate::memory::in_use().unwrap_or(0);
        let one = counting.alloc(small);
        one.write_bytes(7, small.size());
        assert_eq!(crate::memory::in_use(), Some(before + 64));
        let one = counting.realloc(one, small, large.size());
        assert!((0..64).all(|at| *one.add(at) == 7));
        assert_eq!(crate::memory::in_use(), Some(before + 4096));
        let other = counting.alloc_zeroed(large);
        assert!((0..4096).all(|at| *other.add(at) == 0));
        let ((), peak) = crate::memory::peak_of(|| counting.dealloc(counting.alloc(small), small));
        assert_eq!(peak, Some(64));
        counting.dealloc(other, large);
        counting.dealloc(one, large);
        assert_eq!(crate::memory::in_use(), Some(before));
    }
}
