//! Hosts' memory that is registered with the kernel: it is used, released, and never confused with
//! memory that the host maps at its place later. In a process of its own, so that all locked memory
//! is that of this test.

use std::process::Command;
use std::time::Duration;

use media::Direct;
use port::{Outcome, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{Host, Runner, on_disk, open_file, pattern};

const MIB: usize = 1 << 20;
const CHILD: &str = "MEDIA_TEST_REGISTERED";

#[test]
fn memory_is_registered_given_up_and_never_another() {
    if std::env::var_os(CHILD).is_none() {
        let name = "registered::memory_is_registered_given_up_and_never_another";
        let status = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .status()
            .expect("started");
        assert!(status.success());
        return;
    }
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(MIB as u64), Direct::Auto);
    let mut host = Host::new(4 * MIB);
    let mut runner = Runner::new(&medium, 8);

    until_registered(&host, &mut runner);
    assert!(pinned() >= 4 * MIB, "{} are held", pinned());
    moves(&host, &mut runner, 1);

    // The host gives its pages away between an unmap and a map, and has others at the same place.
    host.unmap();
    let counted = runner.channel.io_counts();
    host.punch();
    host.map();
    moves(&host, &mut runner, 2);
    let now = runner.channel.io_counts();
    assert_eq!(
        now.registered, counted.registered,
        "the old pages were used"
    );
    until_registered(&host, &mut runner);
    moves(&host, &mut runner, 3);

    // Memory that the host has unmapped is released, also without further commands.
    host.unmap();
    until("the memory is released", || {
        runner.channel.tend();
        pinned() == 0
    });

    // Within the limit.
    let most = getrlimit(Resource::Memlock).maximum;
    let limit = Rlimit {
        current: Some(4 * MIB as u64 - 1),
        maximum: most,
    };
    setrlimit(Resource::Memlock, limit).expect("a lower limit");
    host.map();
    let before = runner.channel.io_counts();
    for _ in 0..20 {
        many(&host, &mut runner);
        std::thread::sleep(Duration::from_millis(100));
    }
    let now = runner.channel.io_counts();
    assert_eq!(
        (now.registered, pinned()),
        (before.registered, 0),
        "above the limit"
    );
    assert!(now.plain > before.plain + 20 * 256);
    runner.channel.tend();
    assert_eq!(medium.io_counts(), Some(runner.channel.io_counts()));
}

/// Commands of one and of two pieces, until they use registered memory.
fn until_registered(host: &Host, runner: &mut Runner) {
    let before = runner.channel.io_counts().registered;
    until("the memory is registered", || {
        many(host, runner);
        runner.channel.io_counts().registered > before
    });
}

fn many(host: &Host, runner: &mut Runner) {
    for _ in 0..512 {
        let request = Request::Read {
            offset: 0,
            len: 4096,
        };
        assert_eq!(runner.run(host, &request, &[(0, 4096)]), Outcome::OK);
    }
}

/// Bytes go where they belong, through pieces of all kinds.
fn moves(host: &Host, runner: &mut Runner, seed: u64) {
    let shapes = [
        vec![(0, 65_536)],
        vec![(4 * MIB - 65_536, 65_536)],
        vec![(8192, 32_768), (MIB, 4096), (MIB + 16_384, 28_672)],
        vec![(4, 65_536)], // not where direct I/O could use it
    ];
    for (n, pieces) in shapes.iter().enumerate() {
        let data = pattern(seed * 16 + n as u64, 65_536);
        let put = |data: &[u8]| {
            let mut rest = data;
            for (at, len) in pieces {
                host.put(*at, &rest[..*len]);
                rest = &rest[*len..];
            }
        };
        put(&data);
        for fua in [false, true] {
            let write = Request::Write {
                offset: 4096,
                len: 65_536,
                fua,
            };
            assert_eq!(runner.run(host, &write, pieces), Outcome::OK);
        }
        put(&[0; 65_536]);
        let read = Request::Read {
            offset: 4096,
            len: 65_536,
        };
        assert_eq!(runner.run(host, &read, pieces), Outcome::OK);
        let found: Vec<u8> = pieces
            .iter()
            .flat_map(|(at, len)| host.get(*at, *len))
            .collect();
        assert!(found == data, "seed {seed}, {pieces:?}");
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it does not come to this: {what}");
}

/// Bytes of this process that the kernel holds where they are.
fn pinned() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let mut lines = status.lines();
    let pinned = lines.find_map(|line| line.strip_prefix("VmPin:"));
    let text = pinned.expect("VmPin").trim().trim_end_matches(" kB");
    text.parse::<usize>().expect("a number") * 1024
}
