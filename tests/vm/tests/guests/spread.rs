//! A host over NVMe/TCP whose I/O queues are on several reactors, and move while it works: the
//! queues of Linux, which knows no reactors.

use std::thread;
use std::time::{Duration, Instant};

use guest_rig::{Guest, Kernel};

use crate::served::{BOUND, Served, finish, tell, wait};
use crate::tcp::{boot, free_port};

/// A file: what was written outlives the server.
const CONFIG: &str = r#"
[[reactor]]
mode = "adaptive"

[[reactor]]
mode = "adaptive"

[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "data"
media = "disk"
lba_size = 512

[[controller]]
name = "store"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT"
subnqn = "nqn.2026-11.org.example:spread"
reactor = 0
reactors = [0, 1]
"#;

/// Where the configuration puts the host's queues 1 to 4.
const CONFIGURED: [u64; 4] = [0, 1, 0, 1];
/// Moves of the controller, and the reactors of the host's queues then. The last one is back.
const MOVES: [(&[&str], [u64; 4]); 4] = [
    (&["1"], [1, 1, 1, 1]),
    (&["1", "0"], [1, 0, 1, 0]),
    (&["0"], [0, 0, 0, 0]),
    (&["0", "1"], CONFIGURED),
];
/// What the server says where it cannot move every queue at once.
const AGAIN: &str = "move them again";

/// The reactors of the host's queues; none while it has no queues.
fn placement(served: &Served) -> Vec<u64> {
    let looked = served.ask("/v1/controllers/store/queues");
    let queues = looked["hosts"][0]["queues"].as_array();
    let reactor = |queue: &serde_json::Value| queue["reactor"].as_u64().expect("a reactor");
    queues.into_iter().flatten().map(reactor).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let bound = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < bound, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Commands that each of the host's queues completes from now on, wherever it is.
fn all_work(served: &Served) {
    let completed = || {
        [1, 2, 3, 4].map(|queue| {
            let labels = format!("{{controller=\"store\",queue=\"{queue}\"}}");
            served.metric(&format!("nvmirage_queue_completions_total{labels}"))
        })
    };
    let before = completed();
    until("a queue stands still", || {
        let now = completed();
        before.iter().zip(now).all(|(before, now)| now > *before)
    });
}

/// Moves all queues there and back. Each works wherever it is.
fn to_and_fro(served: &Served) {
    for (to, then) in MOVES {
        served.steer(&[&["move", "store"], to].concat());
        assert_eq!(placement(served), then);
        all_work(served);
    }
}

/// Waits until the host's load goes on, and its queues are on these reactors.
fn goes_on(served: &Served, guest: &mut Guest, reactors: [u64; 4]) {
    wait(guest, "again");
    until("queues are elsewhere", || placement(served) == reactors);
    all_work(served);
}

/// Queues that are made or deleted at that moment are on their way already, so a move may be
/// refused.
fn move_meanwhile(served: &Served, to: &[&str]) {
    let command = [&["move", "store"], to].concat();
    until("the queues do not move", || {
        let refused = served.try_to_steer(&command).err();
        let said = refused.as_deref().unwrap_or(AGAIN);
        assert!(said.contains(AGAIN), "{said}");
        refused.is_none()
    });
}

fn moves_under_load(kernel: Kernel) {
    let port = free_port();
    let mut served = Served::start(&CONFIG.replace("PORT", &port.to_string()));
    let entrance = format!("ADDRESS=10.0.2.2 PORT={port} NQN=nqn.2026-11.org.example:spread");
    let job = format!("{entrance}\n{}", include_str!("jobs/spread.sh"));
    let mut guest = boot(kernel, &job);
    goes_on(&served, &mut guest, CONFIGURED);
    for reactor in [0, 1] {
        let commands = format!("nvmirage_reactor_commands_total{{reactor=\"{reactor}\"}}");
        assert!(served.metric(&commands) > 0.0, "reactor {reactor} is idle");
    }
    for _ in 0..3 {
        to_and_fro(&served);
    }
    // The host deletes its queues and makes new ones.
    tell(&mut guest, "reset");
    for (to, _) in MOVES {
        move_meanwhile(&served, to);
    }
    goes_on(&served, &mut guest, CONFIGURED);
    to_and_fro(&served);
    // It connects to another process, which has kept where queues are.
    let (to, then) = MOVES[1];
    served.steer(&[&["move", "store"], to].concat());
    served = served.stop().start_again();
    tell(&mut guest, "restarted");
    goes_on(&served, &mut guest, then);
    to_and_fro(&served);
    tell(&mut guest, "end");
    finish(guest);
    served.stop();
}

#[test]
fn queues_of_a_host_move_between_reactors_while_it_works() {
    moves_under_load(Kernel::Stable);
}

mod slow {
    use guest_rig::Kernel;

    #[test]
    fn queues_of_a_host_with_a_newer_kernel_move() {
        super::moves_under_load(Kernel::Backports);
    }
}
