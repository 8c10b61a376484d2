//! Cases, by the process that misbehaves.

mod deaths;
mod flood;
mod requests;
mod upgrade;

use crate::Test;

/// All tests.
pub(crate) fn all() -> Vec<Test> {
    let all = [requests::TESTS, deaths::TESTS, flood::TESTS, upgrade::TESTS];
    all.concat()
}

/// A table of the functions of these names.
macro_rules! tests {
    ($module:literal: $($name:ident,)*) => {
        pub(super) const TESTS: &[crate::Test] =
            &[$((concat!($module, "::", stringify!($name)), $name)),*];
    };
}
use tests;

/// Bytes as a worker takes them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
