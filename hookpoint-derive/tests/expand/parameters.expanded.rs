impl Scale {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "forward",
            args: &["x"],
            values: &[],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::None {
                doubts: &[],
            },
            writes: false,
            calls: &[],
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
                    ((match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "+",
                                kind: ::hookpoint::__private::OpKind::Operator,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[
                                (
                                    1u8,
                                    "bias",
                                    ::hookpoint::__private::Erased::of(
                                        &self.bias.as_ref().unwrap(),
                                    ),
                                ),
                            ],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (__uses
                                .operand(
                                    0u8,
                                    (match ((if ::hookpoint::__private::operations_wanted() {
                                        ::hookpoint::__private::uses(
                                            &::hookpoint::__private::OpSite {
                                                name: "broadcast_mul",
                                                kind: ::hookpoint::__private::OpKind::Method,
                                                file: ::core::file!(),
                                                line: ::core::line!(),
                                            },
                                            &[
                                                (0u8, "", ::hookpoint::__private::Erased::of(&x)),
                                                (
                                                    1u8,
                                                    "scale",
                                                    ::hookpoint::__private::Erased::of(&self.scale),
                                                ),
                                            ],
                                        )
                                    } else {
                                        ::hookpoint::__private::Uses::NONE
                                    })) {
                                        __uses => {
                                            (match (x.broadcast_mul(&self.scale)) {
                                                #[allow(unreachable_code)]
                                                __result => __uses.result(__result),
                                            })
                                        }
                                    })?,
                                ) + self.bias.as_ref().unwrap())
                            {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    }))? * 2.0
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
        Scale > ()), type_name : "Scale", methods : & [::hookpoint::__private::MethodInfo
        { name : "forward", args : & ["x"], values : & [], file : ::core::file!(), line :
        ::core::line!(), effects : ::hookpoint::__private::Effects::None { doubts : & []
        }, writes : false, calls : & [], }], }
    }
};
