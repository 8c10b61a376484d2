//! Hosts over NBD: the kernel's own driver and nbd-client, which make disks of exports.

use std::fs;
use std::path::{Path, PathBuf};

use guest_rig::{Kernel, Report, libnbd};

use crate::images::{allocated, bytes, check_ext4, ext4_file};
use crate::numbers;
use crate::served::{Served, finish, tell, text, wait};
use crate::tcp::{boot, free_port};

const MIB: u64 = 1 << 20;

/// Bytes of the exports `small` and `large`.
const LEN: usize = 64 << 20;

/// Namespaces with blocks of each size, and a read-only one.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "128MiB"

[[media]]
name = "written-before"
kind = "file"
path = "DIR/fixed.img"
read_only = true

[[namespace]]
name = "small"
media = "disk"
range = "0MiB..64MiB"
lba_size = 512

[[namespace]]
name = "large"
media = "disk"
range = "64MiB..128MiB"
lba_size = 4096

[[namespace]]
name = "fixed"
media = "written-before"
lba_size = 512

[[controller]]
name = "exports"
namespaces = ["small", "large", "fixed"]
listen = "nbd:127.0.0.1:PORT"
"#;

/// A file: what was written outlives the server.
const FILE: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "data"
media = "disk"

[[controller]]
name = "exports"
namespaces = ["data"]
listen = "nbd:127.0.0.1:PORT"
"#;

/// `NBD_FLAG_HAS_FLAGS`, bit 0 of the transmission flags as the protocol numbers them.
const HAS_FLAGS: u32 = 1;
/// `NBD_FLAG_READ_ONLY`.
const READ_ONLY: u32 = 1 << 1;
/// `HAS_FLAGS`, `SEND_FLUSH`, `SEND_FUA`, `SEND_TRIM`, `SEND_WRITE_ZEROES`, `CAN_MULTI_CONN`.
const WRITABLE: u32 = HAS_FLAGS | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;

/// The script `job` with the server's port, after the functions of all hosts over NBD.
fn job(port: u16, job: &str) -> String {
    format!("PORT={port}\n{}\n{job}", include_str!("jobs/nbd.sh"))
}

/// The flags that the kernel has of an export.
fn flags(report: &Report, name: &str) -> u32 {
    let flags = text(report, name);
    let hex = flags.lines().find_map(|line| line.strip_prefix("Hex: 0x"));
    let hex = hex.unwrap_or_else(|| panic!("the kernel shows no flags: {flags}"));
    u32::from_str_radix(hex, 16).expect("the kernel prints hexadecimal digits")
}

/// Reads an export into the file `to` over NBD, with another client than the guest's.
fn copy(port: u16, export: &str, to: &Path) {
    let program = libnbd::program("nbdcopy").unwrap_or_else(|error| panic!("{error}"));
    let uri = format!("nbd://127.0.0.1:{port}/{export}");
    let output = program.command().arg(uri).arg(to).output();
    let output = output.expect("nbdcopy starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nbdcopy of {export} fails: {said}");
}

fn uses_exports(kernel: Kernel) {
    let port = free_port();
    let served = Served::start_with(&CONFIG.replace("PORT", &port.to_string()), |dir| {
        let mut content = numbers(100_000);
        content.resize(1 << 20, 0);
        fs::write(dir.join("fixed.img"), content).expect("the folder is ours");
    });
    let mut guest = boot(kernel, &job(port, include_str!("jobs/nbd_uses.sh")));

    wait(&mut guest, "attached");
    let hosts = served.ask("/v1/hosts");
    let clients = hosts[0]["hosts"].as_array().map(Vec::as_slice);
    let exports = clients.into_iter().flatten().map(|it| &it["export"]);
    assert_eq!(exports.collect::<Vec<_>>(), ["small"; 4], "{hosts}");
    tell(&mut guest, "seen");

    let image = served.file("disk.img");
    wait(&mut guest, "filled");
    let filled = allocated(&image);
    tell(&mut guest, "discard");
    wait(&mut guest, "discarded");
    let given_back = filled.saturating_sub(allocated(&image));
    assert!(
        given_back >= 31 * MIB,
        "a discard of 32 MiB gave {given_back} bytes back"
    );
    tell(&mut guest, "zeroes");
    let report = finish(guest);
    check_flags(&report);

    let copies = ["small", "large"].map(|export| {
        let to = served.file(&format!("{export}.copy"));
        copy(port, export, &to);
        to
    });
    let stopped = served.stop();
    check_content(&stopped.file("disk.img"), &copies);
}

fn check_flags(report: &Report) {
    let writable = flags(report, "small-flags");
    assert_eq!(writable & WRITABLE, WRITABLE, "{writable:#x}");
    assert_eq!(writable & READ_ONLY, 0, "{writable:#x}");
    let fixed = flags(report, "fixed-flags");
    let needed = HAS_FLAGS | READ_ONLY;
    assert_eq!(fixed & needed, needed, "{fixed:#x}");
}

/// What was read over NBD is what the image has, with the files of the guest.
fn check_content(image: &Path, copies: &[PathBuf; 2]) {
    for (copy, offset) in copies.iter().zip([0, LEN as u64]) {
        let content = bytes(image, offset, LEN);
        assert!(
            fs::read(copy).expect("nbdcopy has written it") == content,
            "the image differs at {offset}"
        );
        check_ext4(copy, 0);
        assert!(
            ext4_file(copy, 0, "/numbers") == numbers(100_000),
            "a file changed"
        );
    }
}

/// The server is killed under a load of each of the kernel's two ways to set up a disk.
fn loses_its_server(kernel: Kernel) {
    let port = free_port();
    let mut served = Served::start(&FILE.replace("PORT", &port.to_string()));
    let mut guest = boot(kernel, &job(port, include_str!("jobs/nbd_deaths.sh")));
    for _ in ["netlink", "ioctl"] {
        wait(&mut guest, "loaded");
        let stopped = served.kill();
        tell(&mut guest, "killed");
        wait(&mut guest, "lost");
        served = stopped.start_again();
        tell(&mut guest, "back");
    }
    finish(guest);
    served.stop();
}

#[test]
fn a_host_makes_disks_of_exports() {
    uses_exports(Kernel::Stable);
}

#[test]
fn a_host_finds_what_it_synced_before_its_server_died() {
    loses_its_server(Kernel::Stable);
}

mod slow {
    use guest_rig::Kernel;

    #[test]
    fn a_host_with_a_newer_kernel_makes_disks_of_exports() {
        super::uses_exports(Kernel::Backports);
    }

    #[test]
    fn a_host_with_a_newer_kernel_finds_what_it_synced() {
        super::loses_its_server(Kernel::Backports);
    }
}
