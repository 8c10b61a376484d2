//! The processes of the tests that go through a holder.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests_protocol::held::run()
}
