impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "forward",
            args: &["x"],
            values: &["residual", "y"],
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
        let __kept = &::hookpoint::__private::Kept::new();
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
                    let residual = x;
                    let residual = ::hookpoint::__private::bound_ref(
                        &__HOOKPOINT_METHOD,
                        0u32,
                        residual,
                        __kept,
                    );
                    let y = &(if ::hookpoint::__private::active() {
                        static __HOOKPOINT_SITE: ::hookpoint::__private::CallSite = ::hookpoint::__private::CallSite {
                            method: "forward",
                            field: "up",
                            file: ::core::file!(),
                            line: ::core::line!(),
                        };
                        (match (::hookpoint::__private::before_forward(
                            &__HOOKPOINT_SITE,
                            ::hookpoint::__private::Erased::of(&self.up),
                            &[::hookpoint::__private::Erased::of(&x)],
                            ::hookpoint::__private::Erased::of(&x),
                        )) {
                            ::hookpoint::__private::BeforeForward::Done(__result) => {
                                __result
                            }
                            ::hookpoint::__private::BeforeForward::Made(__result) => {
                                ::hookpoint::__private::uses(
                                        &::hookpoint::__private::OpSite {
                                            name: "forward",
                                            kind: ::hookpoint::__private::OpKind::Method,
                                            file: ::core::file!(),
                                            line: ::core::line!(),
                                        },
                                        &[(1u8, "", ::hookpoint::__private::Erased::of(&x))],
                                    )
                                    .result(__result)
                            }
                            ::hookpoint::__private::BeforeForward::Call(__token) => {
                                ::hookpoint::__private::uses(
                                        &::hookpoint::__private::OpSite {
                                            name: "forward",
                                            kind: ::hookpoint::__private::OpKind::Method,
                                            file: ::core::file!(),
                                            line: ::core::line!(),
                                        },
                                        &[(1u8, "", ::hookpoint::__private::Erased::of(&x))],
                                    )
                                    .result(__token.after(self.up.forward(x)))
                            }
                            ::hookpoint::__private::BeforeForward::Anew(__again) => {
                                (if __again.is_replaced() {
                                    ::hookpoint::__private::Uses::NONE
                                } else {
                                    ::hookpoint::__private::uses(
                                        &::hookpoint::__private::OpSite {
                                            name: "forward",
                                            kind: ::hookpoint::__private::OpKind::Method,
                                            file: ::core::file!(),
                                            line: ::core::line!(),
                                        },
                                        &[(1u8, "", ::hookpoint::__private::Erased::of(&x))],
                                    )
                                })
                                    .result({
                                        #[allow(unused_imports)]
                                        use ::hookpoint::__private::anew::{
                                            ByValue as _, Often as _, Once as _,
                                        };
                                        (&&&&::hookpoint::__private::Written::of(&(), &x))
                                            .make(
                                                __again,
                                                |__input| ::hookpoint::__private::Made::of(
                                                    self.up.forward(__input),
                                                ),
                                            )
                                    })
                            }
                        })
                    } else {
                        self.up.forward(x)
                    })?;
                    let y = ::hookpoint::__private::bound_ref(
                        &__HOOKPOINT_METHOD,
                        1u32,
                        y,
                        __kept,
                    );
                    (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "+",
                                kind: ::hookpoint::__private::OpKind::Operator,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[
                                (0u8, "", ::hookpoint::__private::Erased::of(&residual)),
                                (1u8, "", ::hookpoint::__private::Erased::of(&y)),
                            ],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (residual + y) {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    })
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
        { name : "forward", args : & ["x"], values : & ["residual", "y"], file :
        ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & [], }], }
    }
};
