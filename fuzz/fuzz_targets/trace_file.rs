//! libFuzzer's entry point to `tests_fuzz::trace_file`.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if tests_fuzz::trace_file(bytes) {
        Corpus::Keep
    } else {
        Corpus::Reject
    }
});
