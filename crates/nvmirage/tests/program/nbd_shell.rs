//! A drive over NBD, as libnbd's Python shell uses it.

use guest_rig::libnbd;

use crate::nbd::{LEN, Served, run};

const SCRIPT: &str = include_str!("nbd_shell.py");

#[test]
fn requests_at_once_questions_and_broken_rules() {
    let served = Served::new();
    let head = format!("URI = {:?}\nSIZE = {LEN}\n", served.uri("{}"));
    let mut command = libnbd::shell().unwrap().command();
    command.args(["-n", "-c", &format!("{head}{SCRIPT}")]);
    let output = run(command);
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    served.server.stop();
}
