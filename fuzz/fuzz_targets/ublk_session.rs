//! libFuzzer's entry point to `tests_fuzz::ublk_session`.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if tests_fuzz::ublk_session(bytes) {
        Corpus::Keep
    } else {
        Corpus::Reject
    }
});
