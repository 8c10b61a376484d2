//! Memory of guests: a server cannot reach what QEMU does not share; an IOMMU of the guest maps it
//! piece by piece.

use std::fs;

use guest_rig::Options;

use crate::served::{Served, text};

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

#[test]
fn a_guest_behind_an_iommu_maps_and_unmaps_with_every_command() {
    let served = Served::start(CONFIG);
    let log = served.file("qemu-trace");
    let options = Options {
        // strict: what a command used is unmapped at once, and not together with others'
        kernel_args: ["intel_iommu=on", "iommu.strict=1"].map(Into::into).into(),
        iommu: true,
        qemu_args: [
            "-D".into(),
            log.clone().into(),
            "-trace".into(),
            "vfio_iommu_map_notify".into(),
        ]
        .into(),
        ..Options::default()
    };
    served.run("vm", include_str!("jobs/iommu.sh"), options);
    let log = fs::read_to_string(log).expect("QEMU has written its log");
    let changes = log
        .lines()
        .filter(|line| line.contains("vfio_iommu_map_notify"))
        .count();
    println!("{changes} maps and unmaps");
    // 1088 blocks written and read, mapped and unmapped, twice
    assert!(changes > 4 * 1088, "the IOMMU changed only {changes} maps");
    served.stop();
}
