//! Random programs, each run by a controller and by the model of one.

use proptest::prelude::*;
use tests_model::machine;
use tests_model::program::program;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_controller_does_as_the_model_says(program in program(60)) {
        if let Err(failure) = machine::run(&program) {
            prop_assert!(false, "{failure}");
        }
    }
}
