//! What may stand in annotated code: every construct once with the macros and once without, with
//! equal bits and the points that one would expect.

#![deny(warnings, clippy::all)]
#![allow(clippy::unwrap_used, missing_docs)]

mod twin;
mod weights;

twin::twins! {
    types {
        named_fields,
        tuple_struct,
        unit_struct,
        enum_of_modules,
        generic_over_types_and_constants,
        lifetimes,
    }
}
