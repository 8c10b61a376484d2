//! Interrupts as a guest counts them: by the pin of a function that has no messages to send, and by
//! messages that are coalesced.

use guest_rig::{Boot, Kernel, Options};

use crate::images::check_ext4;
use crate::served::{Served, number, text};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "128MiB"

[[namespace]]
name = "root"
media = "disk"
range = "0MiB..64MiB"

[[namespace]]
name = "raw"
media = "disk"
range = "64MiB..128MiB"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn a_guest_without_messages_is_interrupted_by_the_pin() {
    let served = Served::start(&format!("{CONFIG}intx = true\n"));
    let options = Options {
        kernel_args: vec!["pci=nomsi".into()],
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/pin.sh"), options);
    let queues = text(&report, "queues");
    assert!(
        queues.contains("1/0/0 default/read/poll queues"),
        "{queues}"
    );
    // one line of one pin, for both queues; and no message
    let line = text(&report, "line");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("fasteoi") && !line.contains("MSI"), "{line}");
    assert!(line.contains("nvme0q0, nvme0q1"), "{line}");
    // 512 blocks one by one: no two of them can share an interrupt
    assert!(number(&report, "one-by-one") >= 1024, "{line}");
    let stopped = served.stop();
    check_ext4(&stopped.file("disk.img"), 0);
}

#[test]
fn interrupts_are_coalesced_as_the_host_asks() {
    let served = Served::start(CONFIG);
    let options = Options {
        boot: Boot::Kernel(Kernel::Backports),
        cpus: 1,
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/coalescing.sh"), options);
    served.stop();
    let [each, together, left_out] =
        ["each", "together", "left-out"].map(|name| number(&report, name));
    println!("{each}, {together} and {left_out} interrupts for 2048 commands");
    assert!(
        each >= 2048,
        "{each} interrupts for 2048 commands one by one"
    );
    assert!(
        together <= 2048 / 4,
        "{together} interrupts for 2048 commands, 16 of them at a time"
    );
    assert!(
        left_out >= 2048,
        "{left_out} interrupts of a vector that is left out"
    );
}
