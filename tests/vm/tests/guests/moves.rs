//! Queues of a guest's drive on several reactors, which move while the guest works.

use guest_rig::Options;

use crate::served::{Served, finish, number, tell, wait};

const CONFIG: &str = r#"
[[reactor]]
mode = "FIRST"

[[reactor]]
mode = "adaptive"

[[reactor]]
mode = "interrupt"

[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root"
media = "disk"

[[namespace]]
name = "raw"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
listen = "vfio-user:DIR/vm.sock"
reactor = 0
reactors = [1, 2]
doorbells = "DOORBELLS"
"#;

/// A guest that checks all that it reads, and whose queues move all the while.
fn moves(first: &str, doorbells: &str) {
    let served = Served::start(
        &CONFIG
            .replace("FIRST", first)
            .replace("DOORBELLS", doorbells),
    );
    let mut guest = served.boot("vm", include_str!("jobs/moves.sh"), Options::default());
    wait(&mut guest, "loaded");
    let to_and_fro = || {
        for _ in 0..4 {
            for to in [&["0"][..], &["2", "1"], &["1"], &["2", "0"], &["1", "2"]] {
                let mut command = vec!["move", "vm"];
                command.extend(to);
                served.steer(&command);
            }
        }
    };
    to_and_fro();
    tell(&mut guest, "reset");
    // also while the driver deletes its queues and makes new ones
    wait(&mut guest, "again");
    to_and_fro();
    tell(&mut guest, "stop");
    let report = finish(guest);
    assert_eq!(number(&report, "vectors"), 2, "a vector for each queue");
    served.stop();
}

#[test]
fn queues_move_while_a_guest_works_with_doorbells_in_its_memory() {
    moves("adaptive", "unmapped");
}

#[test]
fn queues_move_while_a_guest_works_with_doorbells_mapped() {
    moves("poll", "mapped");
}
