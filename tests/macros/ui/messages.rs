//! What the compiler says about code that uses the macros wrongly, or that is wrong in itself. Every
//! file of `cases` fails to compile, with exactly the messages beside it.
//!
//! `TRYBUILD=overwrite cargo test -p hookpoint-messages` writes the messages anew.

#[test]
fn mistakes_get_the_messages_beside_them() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}
