//! libFuzzer's entry point to `tests_fuzz::vhost_session`.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if tests_fuzz::vhost_session(bytes) {
        Corpus::Keep
    } else {
        Corpus::Reject
    }
});
