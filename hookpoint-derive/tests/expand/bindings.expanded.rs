impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "forward",
            args: &["x.0"],
            values: &["x.1", "att.0", "att.1", "y"],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::None {
                doubts: &[],
            },
            writes: false,
            calls: &["done", "maybe", "none", "softmax", "split", "tanh"],
        };
        let __entered = ::hookpoint::__private::Entered::new(
            &__HOOKPOINT_METHOD,
            &*self,
        );
        if __entered.wants_preview() {
            __entered.preview(&[(0u32, ::hookpoint::__private::Erased::of(&*x))]);
        }
        let mut __slot0 = ::hookpoint::__private::Slot::new();
        let x = __entered.by_ref(0u32, x, &mut __slot0);
        let __ops = || {
            #[allow(unused_imports)]
            use ::hookpoint::__private::probe::{
                CanCopy as _, CanCopyOk as _, CanFail as _, CanSkip as _,
                CannotCopy as _, CannotFail as _, CannotSkip as _, HasNoTensors as _,
                HasTensors as _,
            };
            ::hookpoint::__private::ValueOps::<Result<Tensor>> {
                each_tensor: (&&::hookpoint::__private::Probe::<Result<Tensor>>::NEW)
                    .each_tensor(),
                from_error: (&&::hookpoint::__private::Probe::<Result<Tensor>>::NEW)
                    .from_error(),
                from_tensor: (&&::hookpoint::__private::Probe::<Result<Tensor>>::NEW)
                    .from_tensor(),
                copy: (&&&::hookpoint::__private::Probe::<Result<Tensor>>::NEW).copy(),
            }
        };
        #[allow(clippy::redundant_closure_call)]
        let mut __output = match __entered.skipped(__ops) {
            ::core::option::Option::Some(__output) => __output,
            ::core::option::Option::None => {
                (move || -> Result<Tensor> {
                    #[cfg(feature = "tanh")]
                    let x = tanh(1);
                    #[cfg(feature = "tanh")]
                    let x = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        0u32,
                        ::hookpoint::__private::given(&["tanh"], x),
                    );
                    let (att, _mask) = split(2);
                    let mut att = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        1u32,
                        ::hookpoint::__private::given(&["split"], att),
                    );
                    att = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        2u32,
                        softmax(3),
                    );
                    let count = |n: usize| n + 1;
                    let Some(y) = maybe(4) else { return none(5) };
                    let y = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        3u32,
                        ::hookpoint::__private::given(&["maybe"], y),
                    );
                    if let Ok(z) = ::core::convert::identity(maybe(6)) && done(7) {}
                    Ok(y)
                })()
            }
        };
        __entered.result(__ops, &mut __output);
        __output
    }
}
const _: () = {
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::ImplInfo { owner :
        ::hookpoint::__private::Owner::Exact(|| ::hookpoint::__private::typeid::of:: <
        Block > ()), type_name : "Block", methods : & [::hookpoint::__private::MethodInfo
        { name : "forward", args : & ["x.0"], values : & ["x.1", "att.0", "att.1", "y"],
        file : ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & ["done", "maybe", "none", "softmax", "split", "tanh"], }], }
    }
};
