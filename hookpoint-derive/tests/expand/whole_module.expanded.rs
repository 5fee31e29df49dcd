mod model {
    #![allow(dead_code)]
    #[derive(::hookpoint::AutoHook)]
    struct Block(Linear);
    #[derive(Clone, AutoHook)]
    struct Derived;
    struct Config;
    fn scaled(x: &Tensor) -> Result<Tensor> {
        ::hookpoint::__private::inventory::submit! {
            ::hookpoint::__private::FunctionInfo { name : "scaled", writes : false, calls
            : & ["tanh"] }
        }
        let y = tanh(1);
        (match ((if ::hookpoint::__private::operations_wanted() {
            ::hookpoint::__private::uses(
                &::hookpoint::__private::OpSite {
                    name: "exp",
                    kind: ::hookpoint::__private::OpKind::Method,
                    file: ::core::file!(),
                    line: ::core::line!(),
                },
                &[(0u8, "", ::hookpoint::__private::Erased::of(&y))],
            )
        } else {
            ::hookpoint::__private::Uses::NONE
        })) {
            __uses => {
                (match (y.exp()) {
                    #[allow(unreachable_code)]
                    __result => __uses.result(__result),
                })
            }
        })
    }
    mod inner {
        impl Block {
            fn check(&self) {
                static __HOOKPOINT_METHOD: ::hookpoint::__private::MethodInfo = ::hookpoint::__private::MethodInfo {
                    name: "check",
                    args: &[],
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
            }
        }
        const _: () = {
            ::hookpoint::__private::inventory::submit! {
                ::hookpoint::__private::ImplInfo { owner :
                ::hookpoint::__private::Owner::Exact(||
                ::hookpoint::__private::typeid::of:: < Block > ()), type_name : "Block",
                methods : & [::hookpoint::__private::MethodInfo { name : "check", args :
                & [], values : & [], file : ::core::file!(), line : ::core::line!(),
                effects : ::hookpoint::__private::Effects::None { doubts : & [] }, writes
                : false, calls : & [], }], }
            }
        };
    }
    #[cfg(test)]
    mod tests {
        struct Untouched;
    }
}
