pub fn rotate_half(x: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let (a, b) = (
        (match ((if ::hookpoint::__private::operations_wanted() {
            ::hookpoint::__private::uses(
                &::hookpoint::__private::OpSite {
                    name: "narrow",
                    kind: ::hookpoint::__private::OpKind::Method,
                    file: ::core::file!(),
                    line: ::core::line!(),
                },
                &[(0u8, "", ::hookpoint::__private::Erased::of(&x))],
            )
        } else {
            ::hookpoint::__private::Uses::NONE
        })) {
            __uses => {
                (match (x.narrow(D::Minus1, 0, half)) {
                    #[allow(unreachable_code)]
                    __result => __uses.result(__result),
                })
            }
        })?,
        (match ((if ::hookpoint::__private::operations_wanted() {
            ::hookpoint::__private::uses(
                &::hookpoint::__private::OpSite {
                    name: "narrow",
                    kind: ::hookpoint::__private::OpKind::Method,
                    file: ::core::file!(),
                    line: ::core::line!(),
                },
                &[(0u8, "", ::hookpoint::__private::Erased::of(&x))],
            )
        } else {
            ::hookpoint::__private::Uses::NONE
        })) {
            __uses => {
                (match (x.narrow(D::Minus1, half, half)) {
                    #[allow(unreachable_code)]
                    __result => __uses.result(__result),
                })
            }
        })?,
    );
    (match ((if ::hookpoint::__private::operations_wanted() {
        ::hookpoint::__private::uses(
            &::hookpoint::__private::OpSite {
                name: "cat",
                kind: ::hookpoint::__private::OpKind::Function,
                file: ::core::file!(),
                line: ::core::line!(),
            },
            &[(0u8, "", ::hookpoint::__private::Erased::of(&a))],
        )
    } else {
        ::hookpoint::__private::Uses::NONE
    })) {
        __uses => {
            (match (Tensor::cat(
                &[
                    &(match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "neg",
                                kind: ::hookpoint::__private::OpKind::Method,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[(0u8, "", ::hookpoint::__private::Erased::of(&b))],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (b.neg()) {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    })?,
                    &a,
                ],
                D::Minus1,
            )) {
                #[allow(unreachable_code)]
                __result => __uses.result(__result),
            })
        }
    })
}
fn scaled<M: Module>(layer: &M, x: &Tensor, scale: f64) -> Result<Tensor> {
    (match ((if ::hookpoint::__private::operations_wanted() {
        ::hookpoint::__private::uses(
            &::hookpoint::__private::OpSite {
                name: "softmax_last_dim",
                kind: ::hookpoint::__private::OpKind::Function,
                file: ::core::file!(),
                line: ::core::line!(),
            },
            &[],
        )
    } else {
        ::hookpoint::__private::Uses::NONE
    })) {
        __uses => {
            (match (__uses
                .function(
                    softmax_last_dim,
                )(
                &__uses
                    .behind(
                        0u8,
                        ((if ::hookpoint::__private::active() {
                            static __HOOKPOINT_SITE: ::hookpoint::__private::CallSite = ::hookpoint::__private::CallSite {
                                method: "forward",
                                field: "",
                                file: ::core::file!(),
                                line: ::core::line!(),
                            };
                            (match (::hookpoint::__private::before_forward(
                                &__HOOKPOINT_SITE,
                                ::hookpoint::__private::Erased::of(&layer),
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
                                        .result(__token.after(layer.forward(x)))
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
                                            (&&&&::hookpoint::__private::Written::of(&layer, &x))
                                                .make(
                                                    __again,
                                                    |__input| ::hookpoint::__private::Made::of(
                                                        layer.forward(__input),
                                                    ),
                                                )
                                        })
                                }
                            })
                        } else {
                            layer.forward(x)
                        })? * scale)?,
                    )
                    .0,
            ))
            {
                #[allow(unreachable_code)]
                __result => __uses.result(__result),
            })
        }
    })
}
impl Attention {
    fn new(vb: VarBuilder) -> Result<Self> {
        let scale = vb.get(4, "scale")?.exp()?;
        Ok(Self { scale })
    }
    fn masked(scores: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        match mask {
            Some(mask) => {
                (match ((if ::hookpoint::__private::operations_wanted() {
                    ::hookpoint::__private::uses(
                        &::hookpoint::__private::OpSite {
                            name: "broadcast_add",
                            kind: ::hookpoint::__private::OpKind::Method,
                            file: ::core::file!(),
                            line: ::core::line!(),
                        },
                        &[
                            (0u8, "", ::hookpoint::__private::Erased::of(&scores)),
                            (1u8, "", ::hookpoint::__private::Erased::of(&mask)),
                        ],
                    )
                } else {
                    ::hookpoint::__private::Uses::NONE
                })) {
                    __uses => {
                        (match (scores.broadcast_add(mask)) {
                            #[allow(unreachable_code)]
                            __result => __uses.result(__result),
                        })
                    }
                })
            }
            None => Ok(scores.clone()),
        }
    }
    fn alone(x: &Tensor) -> Result<Tensor> {
        x.exp()
    }
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
                    (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "masked",
                                kind: ::hookpoint::__private::OpKind::Function,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[(0u8, "", ::hookpoint::__private::Erased::of(&x))],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (Self::masked(x, None)) {
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
        Attention > ()), type_name : "Attention", methods : &
        [::hookpoint::__private::MethodInfo { name : "forward", args : & ["x"], values :
        & [], file : ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & [], }], }
    }
};
