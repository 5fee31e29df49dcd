impl<T> Attention<T> {
    fn new(width: usize) -> Self {
        Self { width }
    }
    fn width(&self) -> usize {
        self.width
    }
    fn mask(&self, n: usize) -> &Tensor {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "mask",
            args: &["n"],
            values: &[],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::None {
                doubts: &[],
            },
            writes: false,
            calls: &["pick"],
        };
        let __entered = ::hookpoint::__private::Entered::new(
            &__HOOKPOINT_METHOD,
            &*self,
        );
        if __entered.wants_scalars() {
            __entered.scalar(0u32, ::core::format_args!("{:?}", & n));
        }
        pick(n)
    }
    fn plain(&self, x: &Tensor) -> Tensor {
        let y = tanh(1);
        y
    }
    fn reset(&mut self, x: Tensor, mask: Option<&Tensor>, cache: &mut Cache<Tensor>) {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "reset",
            args: &["x", "mask", "cache"],
            values: &[],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::Possible,
            writes: false,
            calls: &["clear"],
        };
        let __entered = ::hookpoint::__private::Entered::new(
            &__HOOKPOINT_METHOD,
            &*self,
        );
        let mut x = __entered.by_value(0u32, x);
        __entered.by_look(1u32, &mask);
        __entered.by_look(2u32, &*cache);
        clear(1);
    }
    fn decode(&self, code: &T, config: &Config, codes: &[T]) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "decode",
            args: &["code", "config", "codes"],
            values: &[],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::Possible,
            writes: false,
            calls: &["decode"],
        };
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
        let __entered = ::hookpoint::__private::Entered::giving(
            &__HOOKPOINT_METHOD,
            &*self,
            __ops,
        );
        if __entered.wants_preview() {
            __entered
                .preview(
                    &[
                        (0u32, ::hookpoint::__private::Erased::of(&*code)),
                        (1u32, ::hookpoint::__private::Erased::of(&*config)),
                    ],
                );
        }
        let mut __slot0 = ::hookpoint::__private::Slot::new();
        let code = __entered.by_ref(0u32, code, &mut __slot0);
        __entered.by_look(1u32, &*config);
        #[allow(clippy::redundant_closure_call)]
        let mut __output = match __entered.skipped(__ops) {
            ::core::option::Option::Some(__output) => __output,
            ::core::option::Option::None => (move || -> Result<Tensor> { decode(1) })(),
        };
        __entered.result(__ops, &mut __output);
        __output
    }
    fn encode(
        self: Arc<Self>,
        (a, b): (f64, f64),
        #[cfg(all())]
        x: &Tensor,
    ) -> anyhow::Result<Output> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "encode",
            args: &["", "x"],
            values: &[],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::None {
                doubts: &[],
            },
            writes: false,
            calls: &["encode"],
        };
        let __ops = || {
            #[allow(unused_imports)]
            use ::hookpoint::__private::probe::{
                CanCopy as _, CanCopyOk as _, CanFail as _, CanSkip as _,
                CannotCopy as _, CannotFail as _, CannotSkip as _, HasNoTensors as _,
                HasTensors as _,
            };
            ::hookpoint::__private::ValueOps::<anyhow::Result<Output>> {
                each_tensor: (&&::hookpoint::__private::Probe::<
                    anyhow::Result<Output>,
                >::NEW)
                    .each_tensor(),
                from_error: (&&::hookpoint::__private::Probe::<
                    anyhow::Result<Output>,
                >::NEW)
                    .from_error(),
                from_tensor: (&&::hookpoint::__private::Probe::<
                    anyhow::Result<Output>,
                >::NEW)
                    .from_tensor(),
                copy: (&&&::hookpoint::__private::Probe::<anyhow::Result<Output>>::NEW)
                    .copy(),
            }
        };
        let __entered = ::hookpoint::__private::Entered::giving(
            &__HOOKPOINT_METHOD,
            &*self,
            __ops,
        );
        #[allow(clippy::redundant_closure_call)]
        let mut __output = match __entered.skipped(__ops) {
            ::core::option::Option::Some(__output) => __output,
            ::core::option::Option::None => {
                (move || -> anyhow::Result<Output> { encode(a, b) })()
            }
        };
        __entered.result(__ops, &mut __output);
        __output
    }
}
const _: () = {
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::ImplInfo { owner :
        ::hookpoint::__private::Owner::Defined(|| { #[allow(unused_imports)] use
        ::hookpoint::__private::definition:: { Defined as _, Of, Undefined as _ }; (&&
        Of:: < Attention < () > > ::NEW).definition() }), type_name : "Attention < T >",
        methods : & [::hookpoint::__private::MethodInfo { name : "mask", args : & ["n"],
        values : & [], file : ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & ["pick"], }, ::hookpoint::__private::MethodInfo { name : "reset", args : &
        ["x", "mask", "cache"], values : & [], file : ::core::file!(), line :
        ::core::line!(), effects : ::hookpoint::__private::Effects::Possible, writes :
        false, calls : & ["clear"], }, ::hookpoint::__private::MethodInfo { name :
        "decode", args : & ["code", "config", "codes"], values : & [], file :
        ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::Possible, writes : false, calls : & ["decode"],
        }, ::hookpoint::__private::MethodInfo { name : "encode", args : & ["", "x"],
        values : & [], file : ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & ["encode"], }], }
    }
};
