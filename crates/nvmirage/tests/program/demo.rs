//! `nvmirage demo`: what it shows, and that it leaves nothing.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, names, ran, wait};

#[test]
fn interrupted_it_ends_its_server_and_removes_its_files() {
    let world = World::new();
    let temporary = world.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = world.program();
    command
        .args(["demo", "--time", "20s"])
        .env("TMPDIR", &temporary);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // until the server is there
    while std::fs::read_dir(&temporary)
        .unwrap()
        .next()
        .is_none_or(|dir| !dir.unwrap().path().join("ram.sock").exists())
    {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(
        Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(),
        Signal::INT,
    )
    .unwrap();
    assert_eq!(wait(&mut child).code(), Some(130));
    let ran = ran(child.wait_with_output().unwrap());
    assert!(ran.err.contains("interrupted"), "{}", ran.err);
    assert_eq!(names(&temporary), [""; 0]);
}

#[test]
fn a_temporary_folder_that_cannot_be_used_is_named() {
    let world = World::new();
    let mut command = world.program();
    command.arg("demo").env("TMPDIR", world.path("nowhere"));
    let ran = ran(command.output().unwrap());
    assert_eq!(ran.status.code(), Some(1));
    assert!(ran.err.contains("set TMPDIR"), "{}", ran.err);
}

mod slow {
    use super::*;

    #[test]
    fn both_drives_are_checked_and_measured_and_nothing_is_left() {
        let world = World::new();
        let temporary = world.path("tmp");
        std::fs::create_dir(&temporary).unwrap();
        // it works where the current folder cannot be written
        let current = world.path("current");
        std::fs::create_dir(&current).unwrap();
        std::fs::set_permissions(&current, std::fs::Permissions::from_mode(0o555)).unwrap();
        let mut command = world.program();
        command
            // long enough that a disk which others keep busy carries one command of 128 KiB
            .args(["demo", "--json", "--time", "500ms"])
            .current_dir(&current)
            .env("TMPDIR", &temporary);
        let ran = ran(command.output().unwrap());
        assert!(ran.status.success(), "{}", ran.err);
        let findings: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let drives = findings["drives"].as_array().unwrap();
        assert_eq!(drives.len(), 2);
        for drive in drives {
            assert!(drive["bytes_verified"].as_u64().unwrap() > 0, "{drive:#}");
            let jobs = drive["jobs"].as_array().unwrap();
            assert_eq!(jobs.len(), 6);
            for job in jobs {
                // commands that a stall of the machine falls into are not counted, and a busy
                // machine may stall all the time
                let some = job["iops"].as_f64() > Some(0.0) || job["stalls"].as_u64() > Some(0);
                assert!(job["errors"] == 0 && some, "{job:#}");
            }
        }
        assert_eq!(names(&temporary), [""; 0]);
        assert!(
            !world.path("state").exists(),
            "the user's state is not touched"
        );
    }
}
