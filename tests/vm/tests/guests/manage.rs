//! A guest that manages its drive with nvme-cli: formats, namespaces of its own making, copies,
//! uncorrectable blocks, sanitizing, a vendor command; and what of it is still there when the
//! server has started again.

use guest_rig::Options;

use crate::images::bytes;
use crate::numbers;
use crate::served::{Served, json};

/// Half of the file is in no namespace: the guest makes its own of it.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "96MiB"
vendor = "fetch_add"

[[namespace]]
name = "root"
media = "disk"
range = "0MiB..16MiB"

[[namespace]]
name = "raw"
media = "disk"
range = "16MiB..48MiB"

[[controller]]
name = "vm"
namespaces = ["root", "raw"]
pool = ["disk"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn a_guest_manages_its_drive() {
    let served = Served::start(CONFIG);
    let report = served.run("vm", include_str!("jobs/manage.sh"), Options::default());
    let errors = json(&report, "errors").to_string();
    // nvme-cli prints a status in its own words; this one is of what could not be read
    assert!(errors.contains("lba\":4100"), "{errors}");

    let served = served.stop().start_again();
    let report = served.run("vm", include_str!("jobs/managed.sh"), Options::default());
    let sanitized = json(&report, "sanitized").to_string();
    assert!(sanitized.contains("\"sprog\":65535"), "{sanitized}");

    let stopped = served.stop();
    let image = stopped.file("disk.img");
    // the guest's own namespace is where none of the operator's is
    let numbers = numbers(100_000);
    assert!(
        (48..=80).any(|mib| bytes(&image, mib << 20, numbers.len()) == numbers),
        "the namespace that the guest made is not in the pool"
    );
}
