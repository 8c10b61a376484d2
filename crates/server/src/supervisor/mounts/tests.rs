//! Panics of a mount's threads. The programs that use the files are children of the test, so that
//! they end with it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use api::config;
use fuse::testing::{is_struck, set_struck};

use crate::supervisor::Supervisor;

const LONG: Duration = Duration::from_secs(40);

fn shell(script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn succeeds(script: &str) {
    let mut child = shell(script);
    await_that(script, || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success(), "{script}");
}

/// Two drives whose commands are so slow that the reader does not poll for their completions.
fn serve(folder: &Path) -> Supervisor {
    let folder = folder.display();
    let mut text = format!("state_dir = \"{folder}/state\"\n");
    for name in ["one", "two"] {
        std::fs::create_dir(format!("{folder}/{name}")).unwrap();
        text += &format!(
            r#"
            [[media]]
            name = "{name}"
            kind = "ram"
            size = "16MiB"
            timing = {{ preset = "optane-p4800x", read_latency = "300us" }}
            [[namespace]]
            name = "{name}"
            media = "{name}"
            [[controller]]
            name = "{name}"
            namespaces = ["{name}"]
            listen = "fuse:{folder}/{name}"
            "#
        );
    }
    Supervisor::start(config::from_toml(&text).unwrap(), None, None, None).unwrap()
}

#[test]
fn a_panic_of_any_thread_ends_its_mount_with_errors_and_no_other() {
    for thread in ["fuser", "completions", "namespaces"] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display().to_string();
        let supervisor = serve(folder.path());
        // Each writes parts of blocks until a write fails; the last one keeps its file open, as a
        // loop device does.
        let write = "dd if=/dev/zero bs=512 count=4 conv=notrunc,nocreat status=none";
        let mut writers: Vec<Child> = (0..4)
            .map(|at| {
                shell(&format!(
                    "while {write} seek={at} of={dir}/one/ns1; do :; done"
                ))
            })
            .collect();
        let held = format!("exec 3<>{dir}/one/ns1; while {write} >&3; do :; done");
        writers.push(shell(&held));
        succeeds(&format!("{write} of={dir}/two/ns1"));
        assert!(
            writers
                .iter_mut()
                .all(|child| child.try_wait().unwrap().is_none())
        );

        match thread {
            // the other drive has no requests, but its namespaces are watched
            "namespaces" => set_struck(&format!("namespaces of {dir}/one")),
            _ => set_struck(thread),
        }
        await_that(thread, || !is_struck());
        for child in &mut writers {
            let is_over = || child.try_wait().unwrap().is_some();
            await_that(&format!("{thread}: a writer hangs"), is_over);
        }
        await_that("it is still mounted", || !mounted(&format!("{dir}/one")));
        assert!(mounted(&format!("{dir}/two")));
        succeeds(&format!(
            "{write} of={dir}/two/ns1 && cat {dir}/two/ns1 >{dir}/copy"
        ));
        supervisor.delete_controller("one", false).unwrap();
        let _ = supervisor.stop();
        assert!(!mounted(&format!("{dir}/two")));
    }
}

/// Reads the kernel's table, because a look at the folder may block on the mount.
fn mounted(dir: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(dir))
}
