const _: () = {
    #[automatically_derived]
    impl ::hookpoint::HookValue for Output {
        fn each_tensor(
            &mut self,
            __place: &mut ::hookpoint::__private::Place,
            __f: &mut ::hookpoint::__private::EachTensor<'_>,
        ) -> ::hookpoint::Result<()> {
            #[allow(unused_imports)]
            use ::hookpoint::__private::part::{Part, PassOver as _, VisitTensors as _};
            Part("logits", &mut self.logits).visit_part(__place, __f)?;
            ::core::result::Result::Ok(())
        }
    }
    unsafe impl ::hookpoint::__private::Derived for Output {
        fn copy(&self) -> ::core::option::Option<::hookpoint::__private::AnyValue> {
            #[allow(unused_imports)]
            use ::hookpoint::__private::copy::{CanCopy as _, CannotCopy as _, Copy};
            (&&Copy(self)).copy_value()
        }
    }
    ::hookpoint::__private::inventory::submit! {
        ::hookpoint::__private::DynamicOps::derived:: < Output > ()
    }
};
const _: () = {
    #[automatically_derived]
    impl<T: ::hookpoint::HookValue> ::hookpoint::HookValue for Pair<T> {
        fn each_tensor(
            &mut self,
            __place: &mut ::hookpoint::__private::Place,
            __f: &mut ::hookpoint::__private::EachTensor<'_>,
        ) -> ::hookpoint::Result<()> {
            #[allow(unused_imports)]
            use ::hookpoint::__private::part::{Part, PassOver as _, VisitTensors as _};
            Part("0", &mut self.0).visit_part(__place, __f)?;
            Part("1", &mut self.1).visit_part(__place, __f)?;
            ::core::result::Result::Ok(())
        }
    }
};
