use hookpoint::prelude::*;
use hookpoint_tests::language::check_gradients;

use crate::fixtures::{expected, model, Test, CASES};
use crate::parity::our_name;

#[test]
fn gradients_of_hidden_states_patterns_and_modules_are_those_of_pytorch() -> Test {
    // Checkpoints in half precision are left to the tests of the forward pass.
    for case in CASES.into_iter().filter(|case| !case.ends_with("f16")) {
        let model = Hooked::new(model(case));
        let layers = model.config().n_layer;
        let modules = check_gradients(case, &model, &expected(case), layers, our_name)?;
        assert!(modules > 8 * layers, "{case}: {modules} modules");
    }
    Ok(())
}
