//! Our own program inside a guest, where it drives the guest's drives over VFIO, behind the guest's
//! IOMMU.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use guest_rig::{Boot, Guest, Kernel, Options, Report};
use tempfile::TempDir;

use crate::served::{Served, finish, rig, text, wait};

/// Functions of these jobs.
const FUNCTIONS: &str = concat!(
    include_str!("jobs/functions.sh"),
    "\n",
    include_str!("jobs/vfio.sh")
);

/// A guest with an IOMMU, our program, and what `arguments` say.
pub(crate) fn options(arguments: &[&str]) -> Options {
    Options {
        iommu: true,
        program: true,
        memory_mib: 1280,
        // the kernel's own use of the IOMMU is no part of it, and slow
        kernel_args: ["intel_iommu=on", "iommu=pt"].map(Into::into).into(),
        qemu_args: arguments.iter().map(OsString::from).collect(),
        ..Options::default()
    }
}

/// A slot that a drive can be taken out of.
pub(crate) const BAY: &str = "pcie-root-port,id=bay,slot=1,addr=0x11";

/// QEMU's arguments for a drive of its own on the file `disk`, in a slot that it can be taken out
/// of.
fn drive(disk: &Path) -> [String; 6] {
    let file = std::fs::File::create(disk).expect("the drive's file is made");
    file.set_len(64 << 20).expect("the drive's file has a size");
    [
        "-drive".into(),
        format!("if=none,id=disk,format=raw,file={}", disk.display()),
        "-device".into(),
        BAY.into(),
        "-device".into(),
        "nvme,id=nvme-own,drive=disk,serial=guests-own,bus=bay".into(),
    ]
}

/// Boots a guest with a drive on the file `disk.img` of the folder, which runs `job`.
pub(crate) fn boot(dir: &TempDir, kernel: Kernel, job: &str) -> Guest {
    let arguments = drive(&dir.path().join("disk.img"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = Options {
        boot: Boot::Kernel(kernel),
        job: Some(format!("{FUNCTIONS}\n{job}")),
        ..options(&arguments)
    };
    Guest::boot(&rig(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// A drive in memory, as a server outside has it.
const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "memory"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["memory"]
listen = "vfio-user:DIR/vm.sock"
"#;

/// Every access passes the guest's kernel (VFIO), QEMU's IOMMU, and vfio-user: the controller keeps
/// to the specification for a host of each of its ways.
#[test]
fn our_controller_conforms_over_vfio() {
    let served = Served::start(CONFIG);
    let job = format!(
        "{}\n{}",
        include_str!("jobs/vfio.sh"),
        include_str!("jobs/vfio_conformance.sh")
    );
    // In a slot: on the root complex itself QEMU says of any function that it is integrated there.
    let socket = served.file("vm.sock");
    let device = format!(
        r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}},"bus":"bay"}}"#,
        socket.display()
    );
    let arguments = ["-device", BAY, "-device", &device];
    let report = finish(served.boot_on(&[], &job, options(&arguments)));
    let said = text(&report, "conformance");
    println!("{said}");
    // More than three hundred over vfio-user; VFIO hides no more than the MSI-X table and its
    // enable bit.
    let last = said.lines().last().unwrap_or_default();
    let passed = last.split(' ').next().and_then(|n| n.parse().ok());
    assert!(passed > Some(300), "{last}");
    let hidden = said.lines().filter(|line| line.contains("as VFIO does"));
    assert_eq!(hidden.count(), 2, "{said}");
    served.stop();
}

/// QEMU's monitor answers at once.
const ANSWER: Duration = Duration::from_secs(20);

#[test]
fn a_drive_that_is_taken_out_ends_its_program_and_comes_back() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut guest = boot(&dir, Kernel::Stable, include_str!("jobs/vfio_removal.sh"));
    let ask = |guest: &Guest, command: &str| {
        guest
            .ask(command, ANSWER)
            .unwrap_or_else(|error| panic!("{error:#}"));
    };
    for round in ["one", "two"] {
        wait(&mut guest, round);
        ask(
            &guest,
            r#"{"execute":"device_del","arguments":{"id":"nvme-own"}}"#,
        );
        wait(&mut guest, &format!("{round}-gone"));
        ask(
            &guest,
            r#"{"execute":"device_add","arguments":{"driver":"nvme","id":"nvme-own","drive":"disk","serial":"guests-own","bus":"bay"}}"#,
        );
    }
    println!("{}", text(&finish(guest), "ends"));
}

#[test]
fn a_drive_is_taken_from_the_kernel_used_and_given_back() {
    taken_and_given_back(Kernel::Stable);
}

mod slow {
    #[test]
    fn a_drive_is_taken_from_a_newer_kernel_used_and_given_back() {
        super::taken_and_given_back(guest_rig::Kernel::Backports);
    }
}

fn taken_and_given_back(kernel: Kernel) {
    let dir = TempDir::new().expect("a temporary folder");
    let report: Report = finish(boot(&dir, kernel, include_str!("jobs/vfio_drive.sh")));
    println!("{}\n{}", text(&report, "list"), text(&report, "identity"));
    let disk = std::fs::read(dir.path().join("disk.img")).expect("the drive's file");
    // the program had the first 16 MiB, the kernel wrote "kept" behind them before
    let kept = &disk[16 << 20..(16 << 20) + 4096];
    assert!(kept.starts_with(&crate::numbers(1000)), "it is as it was");
    assert!(
        disk[(16 << 20) + 4096..].iter().all(|byte| *byte == 0),
        "nothing else was written"
    );
    let written = disk[..16 << 20]
        .chunks(4096)
        .filter(|block| block.iter().any(|byte| *byte != 0));
    assert!(written.count() > 16, "the program has written");
}
