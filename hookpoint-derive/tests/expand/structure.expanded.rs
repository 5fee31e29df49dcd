const _: () = {
    #[automatically_derived]
    impl ::hookpoint::AutoHook for Mlp {
        fn visit(&self, __visitor: &mut ::hookpoint::Visitor<'_>) {
            #[allow(unused_imports)]
            use ::hookpoint::__private::field::{
                Field, PassOver as _, PassOverCounted as _, PassOverKnown as _,
                PassOverShared as _, VisitHooked as _, VisitModule as _,
                VisitModuleT as _, VisitModules as _,
            };
            __visitor
                .module(
                    self,
                    |__visitor| {
                        let _ = &__visitor;
                        (&&&&&&&Field("up", &self.up)).visit_field(__visitor);
                        (&&&&&&&Field("out", &self.down)).visit_field(__visitor);
                        (&&&Field("0", &self.config)).note_state(__visitor);
                    },
                );
        }
    }
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::TypeInfo { name : "Mlp", module : ::core::module_path!(),
        file : ::core::file!(), line : ::core::line!(), }
    }
};
const _: () = {
    static __DEFINITION: ::hookpoint::__private::TypeInfo = ::hookpoint::__private::TypeInfo {
        name: "Wrapper",
        module: ::core::module_path!(),
        file: ::core::file!(),
        line: ::core::line!(),
    };
    impl<'a, M: Module, F: Fn(usize), const N: usize> ::hookpoint::__private::Definition
    for Wrapper<'a, M, F, N> {
        fn definition() -> &'static ::hookpoint::__private::TypeInfo {
            &__DEFINITION
        }
    }
    #[automatically_derived]
    impl<
        'a,
        M: Module + ::hookpoint::AutoHook,
        F: Fn(usize),
        const N: usize,
    > ::hookpoint::AutoHook for Wrapper<'a, M, F, N> {
        fn visit(&self, __visitor: &mut ::hookpoint::Visitor<'_>) {
            #[allow(unused_imports)]
            use ::hookpoint::__private::field::{
                Field, PassOver as _, PassOverCounted as _, PassOverKnown as _,
                PassOverShared as _, VisitHooked as _, VisitModule as _,
                VisitModuleT as _, VisitModules as _,
            };
            __visitor
                .defined(
                    self,
                    &__DEFINITION,
                    |__visitor| {
                        let _ = &__visitor;
                        (&&&&&&&Field("0", &self.0)).visit_field(__visitor);
                        (&&&&&&&Field("1", &self.1)).visit_field(__visitor);
                        (&&&&&&&Field("2", &self.2)).visit_field(__visitor);
                    },
                );
        }
    }
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::TypeInfo { name : "Wrapper", module :
        ::core::module_path!(), file : ::core::file!(), line : ::core::line!(), }
    }
};
const _: () = {
    #[automatically_derived]
    impl ::hookpoint::AutoHook for Kind {
        fn visit(&self, __visitor: &mut ::hookpoint::Visitor<'_>) {
            #[allow(unused_imports)]
            use ::hookpoint::__private::field::{
                Field, PassOver as _, PassOverCounted as _, PassOverKnown as _,
                PassOverShared as _, VisitHooked as _, VisitModule as _,
                VisitModuleT as _, VisitModules as _,
            };
            __visitor
                .module(
                    self,
                    |__visitor| {
                        let _ = &__visitor;
                        match self {
                            Self::One { 0: __field0, .. } => {
                                (&&&&&&&Field("0", __field0)).visit_field(__visitor);
                            }
                            Self::Two { up: __field0, r#type: __field1, .. } => {
                                (&&&&&&&Field("up", __field0)).visit_field(__visitor);
                                (&&&&&&&Field("type", __field1)).visit_field(__visitor);
                            }
                            Self::None { .. } => {}
                        }
                    },
                );
        }
    }
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::TypeInfo { name : "Kind", module :
        ::core::module_path!(), file : ::core::file!(), line : ::core::line!(), }
    }
};
