//! The ways past the block layer: queues that the driver polls, and commands that a program passes
//! through with io_uring, its buffers fixed or not.

use guest_rig::{Boot, Kernel, Options, Report};

use crate::served::{Served, number, text};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "root"
media = "disk"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn polled_queues_and_commands_passed_through() {
    let served = Served::start(CONFIG);
    let options = Options {
        boot: Boot::Kernel(Kernel::Backports),
        // every transfer of a block and more is described by an SGL
        kernel_args: ["nvme.poll_queues=1", "nvme.sgl_threshold=4096"]
            .map(Into::into)
            .into(),
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/rings.sh"), options);
    served.stop();

    assert!(text(&report, "queues").contains("2/0/1 default/read/poll queues"));
    assert_eq!(text(&report, "poll").trim(), "1");
    // queue 3 is the one without an interrupt
    assert_eq!(text(&report, "vectors").trim(), "nvme0q0\nnvme0q1\nnvme0q2");
    // what fio does: 1024 blocks written, and read to verify them
    for name in ["polled", "passed-polled"] {
        assert!(
            number(&report, &format!("{name}-queue-3")) >= 2048,
            "{name}"
        );
        let interrupts = grown(&report, name);
        assert!(interrupts < 100, "{name}: {interrupts} interrupts");
    }
    for name in ["passed", "passed-fixed"] {
        assert!(
            number(&report, &format!("{name}-commands")) >= 2048,
            "{name}"
        );
        assert_eq!(number(&report, &format!("{name}-queue-3")), 0, "{name}");
        assert!(grown(&report, name) > 100, "{name} had no interrupts");
    }
    // the first start, and the resets
    assert_eq!(number(&report, "resets"), 6);
}

/// How many interrupts queues had during a step.
fn grown(report: &Report, name: &str) -> u64 {
    number(report, &format!("{name}-interrupts"))
        - number(report, &format!("{name}-interrupts-before"))
}
