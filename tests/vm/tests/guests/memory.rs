//! Memory of guests: a server cannot reach what QEMU does not share.

use tests_vm::Options;

use crate::served::{Served, text};

const CONFIG: &str = r#"
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
"#;

#[test]
fn memory_that_is_not_shared_is_named_and_the_next_guest_is_served() {
    let mut served = Served::start(CONFIG);
    let private = Options {
        share_memory: false,
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/private.sh"), private);
    assert!(
        text(&report, "log").contains("pci function"),
        "the guest saw no drive"
    );
    served.wait_for_line("memory-backend-memfd,share=on");
    served.run("vm", include_str!("jobs/bound.sh"), Options::default());
    served.stop();
}
