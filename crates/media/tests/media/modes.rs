//! All other tests once more, with files whose submissions a thread of the kernel looks for.

use std::process::Command;

use crate::common::FILE_IO;

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn everything_holds_with_a_kernel_thread_that_submits() {
        if std::env::var_os(FILE_IO).is_some() {
            return; // this is once more
        }
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args(["--test-threads", "2", "--skip", "modes::"])
            .env(FILE_IO, "poll_submissions")
            .output()
            .expect("started");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }
}
