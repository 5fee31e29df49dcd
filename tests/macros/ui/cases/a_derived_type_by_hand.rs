//! What the derive says of a type without lifetimes, nobody says of another in safe code: values of `View<'_>` would
//! be handed out as `View<'static>`.

use hookpoint::__private::{AnyValue, Derived, DynamicOps, EachTensor, Place};
use hookpoint::HookValue;

struct View<'a>(&'a str);

impl HookValue for View<'static> {
    fn each_tensor(&mut self, _: &mut Place, _: &mut EachTensor<'_>) -> hookpoint::Result<()> {
        let text: &'static str = self.0;
        println!("{text}");
        Ok(())
    }
}

impl Derived for View<'static> {
    fn copy(&self) -> Option<AnyValue> {
        None
    }
}

hookpoint::__private::inventory::submit! { DynamicOps::derived::<View<'static>>() }

fn main() {}
