//! Two guests at the same time, on two controllers of one process that share a file and memory:
//! both controllers on one reactor, or each on its own. Each guest is a tenant of the memory, and
//! one of the two has a cap.

use guest_rig::Options;

use crate::images::{bytes, check_ext4};
use crate::served::{Served, finish, tell, text, wait};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "256MiB"

[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root-a"
media = "disk"
range = "32MiB..96MiB"

[[namespace]]
name = "root-b"
media = "disk"
range = "128MiB..192MiB"

[[namespace]]
name = "raw-a"
media = "memory"
range = "0MiB..32MiB"

[[namespace]]
name = "raw-b"
media = "memory"
range = "32MiB..64MiB"

[[tenant]]
name = "free"

[[tenant]]
name = "capped"

[[controller]]
name = "a"
namespaces = ["root-a", "raw-a"]
listen = "vfio-user:DIR/a.sock"
serial = "A"
tenant = "free"

[[controller]]
name = "b"
namespaces = ["root-b", "raw-b"]
listen = "vfio-user:DIR/b.sock"
serial = "B"
tenant = "capped"
"#;

/// Commands in a second, and what fio may show of them: it counts from its first to its last one.
const CAP: u64 = 500;
const SEEN: std::ops::RangeInclusive<u64> = 250..=550;

const MIB: u64 = 1 << 20;

#[test]
fn two_guests_on_one_reactor() {
    two_guests(CONFIG);
}

mod slow {
    #[test]
    fn two_guests_on_two_reactors() {
        let reactors = "[[reactor]]\nmode = \"adaptive\"\n\n[[reactor]]\nmode = \"interrupt\"\n";
        super::two_guests(&format!("{reactors}{}", super::CONFIG));
    }
}

fn two_guests(config: &str) {
    let mut served = Served::start(config);
    served.wait_for_line("controller b");
    let options = Options {
        cpus: 1,
        memory_mib: 512,
        ..Options::default()
    };
    let job = include_str!("jobs/two.sh");
    let mut guests = ["a", "b"].map(|name| served.boot(name, job, options.clone()));
    // both are there before either works, and until both have: they work at the same time
    for (word, answer) in [("here", "go"), ("done", "read"), ("read", "end")] {
        guests.iter_mut().for_each(|guest| wait(guest, word));
        if answer == "read" {
            served.steer(&["set", "tenant", "capped", &format!("iops={CAP}")]);
        }
        guests.iter_mut().for_each(|guest| tell(guest, answer));
    }
    let [a, b] = guests.map(finish);
    let iops = [&a, &b].map(|report| text(report, "iops").trim().parse::<u64>());
    let [free, capped] = iops.map(|iops| iops.expect("a number"));
    assert!(SEEN.contains(&capped), "{capped} in a second of {CAP}");
    assert!(free > 2 * CAP, "{free} in a second, and no cap");
    assert_eq!(text(&a, "serial").trim(), "A");
    assert_eq!(text(&b, "serial").trim(), "B");

    let stopped = served.stop();
    let image = stopped.file("disk.img");
    check_ext4(&image, 32 * MIB);
    check_ext4(&image, 128 * MIB);
    for gap in [0, 96, 192] {
        let between = bytes(&image, gap * MIB, 32 << 20);
        assert!(
            between.iter().all(|byte| *byte == 0),
            "a guest wrote outside its namespace"
        );
    }
}
