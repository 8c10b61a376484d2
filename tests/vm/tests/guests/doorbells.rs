//! The ways in which doorbells reach a reactor, as QEMU sees them: it logs each write to a register
//! that it carries to the server. What a guest stores in a page that is mapped, or in its own
//! memory, QEMU does not see.

use std::fs;

use guest_rig::{Options, Report};

use crate::served::{Served, finish, number, tell, wait};

const CONFIG: &str = r#"
[[reactor]]
mode = "MODE"

[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
doorbells = "DOORBELLS"
"#;

/// Doorbell registers that were written, one by one.
#[derive(Debug, Default)]
struct Rung {
    admin: u64,
    submission: u64,
    completion: u64,
}

/// What a guest's work came to.
struct Work {
    report: Report,
    rung: Rung,
    /// How often the server says that it asked the host to ring for the next command of a queue.
    rests: u64,
}

/// Runs a guest's work, and counts what QEMU carried; `idle_load` is what the server may then take
/// of a processor.
fn run(mode: &str, doorbells: &str, idle_load: f64) -> Work {
    let served = Served::start(&CONFIG.replace("MODE", mode).replace("DOORBELLS", doorbells));
    let log = served.file("qemu-trace");
    let trace = [
        "-D".into(),
        log.clone().into(),
        "-trace".into(),
        "vfio_region_write".into(),
    ];
    let options = Options {
        qemu_args: trace.into(),
        ..Options::default()
    };
    let mut guest = served.boot("vm", include_str!("jobs/doorbells.sh"), options);
    wait(&mut guest, "half");
    let mut rests = rests(&served);
    tell(&mut guest, "on");
    wait(&mut guest, "idle");
    rests += self::rests(&served);
    let load = served.load_over(2);
    tell(&mut guest, "end");
    let report = finish(guest);
    assert!(
        load <= idle_load,
        "an idle server takes {load} of a processor"
    );
    let rung = count(&fs::read_to_string(log).expect("QEMU has written its log"));
    served.stop();
    println!(
        "{mode}, {doorbells}: {rung:?} for {} commands, {rests} rests, idle load {load}",
        number(&report, "commands")
    );
    // what the work is: 3072 blocks written and read, twice
    assert!(number(&report, "commands") >= 4 * 3072);
    Work {
        report,
        rung,
        rests,
    }
}

/// Of all queues that there are now.
fn rests(served: &Served) -> u64 {
    let stats = served.ask("/v1/stats");
    let queues = stats["controllers"][0]["completion_queues"].as_array();
    let queues = queues.expect("statistics have a controller with its queues");
    let rests = queues.iter().map(|queue| queue["rests"].as_u64());
    rests.map(|rests| rests.expect("a number")).sum()
}

/// Counts lines such as `vfio_region_write (vfio-user:PATH:region0+0x1008, 0x1, 4)`. Queue N's
/// submission doorbell is at 1000h + 8N, and its completion doorbell 4 bytes after it (PCIe
/// transport 1.1, 3.1.2).
fn count(log: &str) -> Rung {
    let mut rung = Rung::default();
    for line in log.lines() {
        let Some((_, rest)) = line.split_once(":region0+0x") else {
            continue;
        };
        let digits = rest.split(',').next().unwrap_or_default();
        let offset = u64::from_str_radix(digits, 16).expect("an offset in hexadecimal");
        match offset {
            ..0x1000 => {}
            0x1000..0x1008 => rung.admin += 1,
            _ if offset % 8 == 0 => rung.submission += 1,
            _ => rung.completion += 1,
        }
    }
    rung
}

#[test]
fn a_polling_reactor_with_doorbells_in_the_guest_s_memory() {
    let Work {
        report,
        rung,
        rests,
    } = run("poll", "unmapped", 1.1);
    // again after the reset, which ended the registration
    assert_eq!(number(&report, "registrations"), 1);
    // the admin queue's doorbells are always registers
    assert!(rung.admin > 40, "{rung:?}");
    // The driver rings when an index passes the event index. The server moves the event index only
    // at a rest, so there is one ring for each rest, and one for each round of the queue. A slow
    // machine pauses the guest and adds rests.
    let commands = number(&report, "commands");
    let rounds = rung.submission.saturating_sub(rests) + rung.completion;
    assert!(rounds < commands / 200, "{rung:?}, {rests} rests");
}

#[test]
fn a_sleeping_reactor_with_doorbells_in_the_guest_s_memory() {
    let Work { report, rung, .. } = run("interrupt", "unmapped", 0.05);
    assert_eq!(number(&report, "registrations"), 1);
    // a reactor that sleeps is rung for new commands, but never for completions that were taken
    let commands = number(&report, "commands");
    assert!(rung.submission > commands / 20, "{rung:?}");
    assert!(rung.submission <= commands + 100, "{rung:?}");
    assert!(rung.completion < commands / 20, "{rung:?}");
}

#[test]
fn a_sleeping_reactor_with_doorbells_mapped() {
    let Work { report, rung, .. } = run("adaptive", "mapped", 0.3);
    assert_eq!(number(&report, "registrations"), 0);
    assert_eq!(
        rung.admin + rung.submission + rung.completion,
        0,
        "{rung:?}"
    );
}
