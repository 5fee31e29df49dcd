impl Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "forward",
            args: &["x"],
            values: &["scores"],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::None {
                doubts: &[],
            },
            writes: false,
            calls: &["groups"],
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
                    let scores = (match ((if ::hookpoint::__private::operations_wanted() {
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
                                        ((match ((if ::hookpoint::__private::operations_wanted() {
                                            ::hookpoint::__private::uses(
                                                &::hookpoint::__private::OpSite {
                                                    name: "*",
                                                    kind: ::hookpoint::__private::OpKind::Operator,
                                                    file: ::core::file!(),
                                                    line: ::core::line!(),
                                                },
                                                &[
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
                                                (match (__uses
                                                    .operand(
                                                        0u8,
                                                        (match ((if ::hookpoint::__private::operations_wanted() {
                                                            ::hookpoint::__private::uses(
                                                                &::hookpoint::__private::OpSite {
                                                                    name: "matmul",
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
                                                                (match (x
                                                                    .matmul(
                                                                        &__uses
                                                                            .behind(
                                                                                1u8,
                                                                                (match ((if ::hookpoint::__private::operations_wanted() {
                                                                                    ::hookpoint::__private::uses(
                                                                                        &::hookpoint::__private::OpSite {
                                                                                            name: "t",
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
                                                                                        (match (x.t()) {
                                                                                            #[allow(unreachable_code)]
                                                                                            __result => __uses.result(__result),
                                                                                        })
                                                                                    }
                                                                                })?,
                                                                            )
                                                                            .0,
                                                                    ))
                                                                {
                                                                    #[allow(unreachable_code)]
                                                                    __result => __uses.result(__result),
                                                                })
                                                            }
                                                        })?,
                                                    ) * self.scale)
                                                {
                                                    #[allow(unreachable_code)]
                                                    __result => __uses.result(__result),
                                                })
                                            }
                                        }))?,
                                    )
                                    .0,
                            ))
                            {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    })?;
                    let scores = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        0u32,
                        scores,
                    );
                    (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "conv2d",
                                kind: ::hookpoint::__private::OpKind::Method,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[(1u8, "w", ::hookpoint::__private::Erased::of(&self.w))],
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
                                                name: "max_pool2d_with_stride",
                                                kind: ::hookpoint::__private::OpKind::Method,
                                                file: ::core::file!(),
                                                line: ::core::line!(),
                                            },
                                            &[
                                                (
                                                    2u8,
                                                    "stride",
                                                    ::hookpoint::__private::Erased::of(&self.stride),
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
                                                                name: "relu",
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
                                                            (match (x.relu()) {
                                                                #[allow(unreachable_code)]
                                                                __result => __uses.result(__result),
                                                            })
                                                        }
                                                    })?,
                                                )
                                                .max_pool2d_with_stride(
                                                    __uses.operand(1u8, (2, 2)),
                                                    self.stride,
                                                ))
                                            {
                                                #[allow(unreachable_code)]
                                                __result => __uses.result(__result),
                                            })
                                        }
                                    })?,
                                )
                                .conv2d(
                                    &self.w,
                                    __uses.operand(2u8, 1),
                                    __uses
                                        .operand(
                                            3u8,
                                            (match ((if ::hookpoint::__private::operations_wanted() {
                                                ::hookpoint::__private::uses(
                                                    &::hookpoint::__private::OpSite {
                                                        name: "groups",
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
                                                    (match (groups(x)) {
                                                        #[allow(unreachable_code)]
                                                        __result => __uses.result(__result),
                                                    })
                                                }
                                            })?,
                                        ),
                                    __uses.operand(4u8, 1),
                                    __uses.operand(5u8, Self::GROUPS),
                                ))
                            {
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
    fn rotated(
        &self,
        x: &Tensor,
        rope: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
            name: "rotated",
            args: &["x.0", "rope"],
            values: &["mask", "x.1"],
            file: ::core::file!(),
            line: ::core::line!(),
            effects: ::hookpoint::__private::Effects::Possible,
            writes: false,
            calls: &["causal"],
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
            __entered.preview(&[(0u32, ::hookpoint::__private::Erased::of(&*x))]);
        }
        let mut __slot0 = ::hookpoint::__private::Slot::new();
        let x = __entered.by_ref(0u32, x, &mut __slot0);
        #[allow(clippy::redundant_closure_call)]
        let mut __output = match __entered.skipped(__ops) {
            ::core::option::Option::Some(__output) => __output,
            ::core::option::Option::None => {
                (move || -> Result<Tensor> {
                    let mask = (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "causal",
                                kind: ::hookpoint::__private::OpKind::Function,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[
                                (1u8, "pos", ::hookpoint::__private::Erased::of(&self.pos)),
                            ],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (causal(
                                &__uses
                                    .behind(
                                        0u8,
                                        (match ((if ::hookpoint::__private::operations_wanted() {
                                            ::hookpoint::__private::uses(
                                                &::hookpoint::__private::OpSite {
                                                    name: "abs",
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
                                                (match (x.abs()) {
                                                    #[allow(unreachable_code)]
                                                    __result => __uses.result(__result),
                                                })
                                            }
                                        })?,
                                    )
                                    .0,
                                self.pos,
                            )) {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    })?;
                    let mask = ::hookpoint::__private::bound(
                        &__HOOKPOINT_METHOD,
                        0u32,
                        ::hookpoint::__private::given(&["causal"], mask),
                    );
                    let x = (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "rope",
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
                            (match (rope(x)) {
                                #[allow(unreachable_code)]
                                __result => __uses.result(__result),
                            })
                        }
                    })?;
                    let x = ::hookpoint::__private::bound(&__HOOKPOINT_METHOD, 1u32, x);
                    (match ((if ::hookpoint::__private::operations_wanted() {
                        ::hookpoint::__private::uses(
                            &::hookpoint::__private::OpSite {
                                name: "sdpa",
                                kind: ::hookpoint::__private::OpKind::Function,
                                file: ::core::file!(),
                                line: ::core::line!(),
                            },
                            &[
                                (0u8, "", ::hookpoint::__private::Erased::of(&x)),
                                (1u8, "", ::hookpoint::__private::Erased::of(&x)),
                                (2u8, "", ::hookpoint::__private::Erased::of(&x)),
                            ],
                        )
                    } else {
                        ::hookpoint::__private::Uses::NONE
                    })) {
                        __uses => {
                            (match (__uses
                                .function(
                                    candle_nn::ops::sdpa,
                                )(
                                &x,
                                &x,
                                &x,
                                __uses.operand(3u8, None),
                                __uses.operand(4u8, false),
                                __uses.operand(5u8, 0.5),
                                __uses.operand(6u8, 1.0),
                            ))
                            {
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
        & ["scores"], file : ::core::file!(), line : ::core::line!(), effects :
        ::hookpoint::__private::Effects::None { doubts : & [] }, writes : false, calls :
        & ["groups"], }, ::hookpoint::__private::MethodInfo { name : "rotated", args : &
        ["x.0", "rope"], values : & ["mask", "x.1"], file : ::core::file!(), line :
        ::core::line!(), effects : ::hookpoint::__private::Effects::Possible, writes :
        false, calls : & ["causal"], }], }
    }
};
