//! The operator changes namespaces while a guest runs; only the drive notifies the guest, by
//! asynchronous events.

use guest_rig::{Boot, Kernel, Options};

use crate::served::{Served, finish, number, tell, wait};

const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "128MiB"

[[namespace]]
name = "root"
media = "memory"
range = "0MiB..64MiB"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn a_guest_sees_what_the_operator_changes() {
    let served = Served::start(CONFIG);
    let options = Options {
        boot: Boot::Kernel(Kernel::Backports),
        ..Options::default()
    };
    let mut guest = served.boot("vm", include_str!("jobs/events.sh"), options);
    wait(&mut guest, "ready");
    served.steer(&[
        "create",
        "namespace",
        "added",
        "--media",
        "memory",
        "--range",
        "64MiB..96MiB",
    ]);
    served.steer(&["attach", "added", "vm"]);
    wait(&mut guest, "used");
    served.steer(&["resize", "added", "64MiB"]);
    wait(&mut guest, "grown");
    served.steer(&["detach", "added", "vm", "--detach-hosts"]);
    wait(&mut guest, "gone");
    served.steer(&["attach", "added", "vm"]);
    tell(&mut guest, "back");
    let report = finish(guest);
    // for each change an event: the driver reads the log page of changed namespaces
    assert!(number(&report, "changes") >= 4);
    served.stop();
}
