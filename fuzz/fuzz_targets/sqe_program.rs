//! libFuzzer's entry point to `tests_fuzz::sqe_program`.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if tests_fuzz::sqe_program(bytes) {
        Corpus::Keep
    } else {
        Corpus::Reject
    }
});
