//! A machine without a disk of its own: the firmware's driver finds a boot loader on our drive,
//! that one finds a kernel there, and that kernel lives on it. Or the BIOS finds a first block
//! there, and that one another.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use guest_rig::{Boot, Kernel, Options, guest};

use crate::images::check_ext4;
use crate::served::{Served, number, rig, text};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "192MiB"

[[namespace]]
name = "disk"
media = "disk"
lba_size = 512

[[controller]]
name = "vm"
namespaces = ["disk"]
listen = "vfio-user:DIR/vm.sock"
model_number = "Drive of a firmware"
"#;

pub(crate) const SIZE: u64 = 192 << 20;
/// The identity of the partition that the firmware boots from.
pub(crate) const PARTITION: &str = "0F2D6A3C-71B5-4C8E-9A40-D1E5B3728F96";

#[test]
fn the_firmware_boots_linux_from_the_drive() {
    let options = Options {
        boot: Boot::Firmware,
        job: Some(String::new()),
        kernel_args: vec!["rig.from=the-drive".into()],
        ..Options::default()
    };
    let rig = rig();
    let served = Served::start_with(CONFIG, |dir| {
        let line = guest::command_line(&options);
        let write = || {
            let system = rig.kernel(Kernel::Backports)?;
            let image = dir.join("disk.img");
            rig.firmware()?
                .write_disk(&image, SIZE, PARTITION, &system, &line)
        };
        write().unwrap_or_else(|error| panic!("{error}"));
    });
    let report = served.run("vm", include_str!("jobs/firmware.sh"), options);

    // QEMU gave it no kernel and no words for one
    assert!(text(&report, "words").contains("rig.from=the-drive"));
    // what the loader says of where it came from, and the firmware of what it started
    let partition = text(&report, "partition").trim();
    assert!(partition.eq_ignore_ascii_case(PARTITION), "{partition}");
    assert!(text(&report, "uevent").to_uppercase().contains(PARTITION));
    let entry = text(&report, "entry");
    assert!(entry.contains("Drive of a firmware"), "{entry}");
    // thousands of 512 bytes that the drive had read before Linux looked at it: kernel and file
    // system are 70 MB
    let read = number(&report, "read-before");
    assert!(read > 100, "the firmware read {read} x 512000 bytes");

    let stopped = served.stop();
    check_ext4(
        &stopped.file("disk.img"),
        number(&report, "second-start") * 512,
    );
}

/// What a BIOS starts: it reads eight blocks from block 8 on by the BIOS's own driver, prints what
/// they say on the second serial port, and turns the machine off.
#[rustfmt::skip]
const FIRST_BLOCK: [u8; 56] = [
    0x31, 0xc0,             // xor  ax, ax
    0x8e, 0xd8,             // mov  ds, ax
    0x8e, 0xd0,             // mov  ss, ax
    0xbc, 0x00, 0x7c,       // mov  sp, 0x7c00
    0xbe, 0x28, 0x7c,       // mov  si, packet
    0xb4, 0x42,             // mov  ah, 0x42: extended read; the drive is in dl
    0xcd, 0x13,             // int  0x13
    0x72, 0x0e,             // jc   end
    0xbe, 0x00, 0x7e,       // mov  si, 0x7e00
    0xac,                   // next: lodsb
    0x84, 0xc0,             // test al, al
    0x74, 0x06,             // jz   end
    0xba, 0xf8, 0x02,       // mov  dx, 0x2f8
    0xee,                   // out  dx, al
    0xeb, 0xf5,             // jmp  next
    0xba, 0x04, 0x06,       // end: mov dx, 0x604: the power management's control
    0xb8, 0x00, 0x20,       // mov  ax, 0x2000: soft off
    0xef,                   // out  dx, ax
    0xf4,                   // hlt
    16, 0, 8, 0,            // packet: its length; eight blocks,
    0x00, 0x7e, 0, 0,       // to 0000:7e00,
    8, 0, 0, 0, 0, 0, 0, 0, // from block 8
];

/// Writes an image of [`SIZE`] bytes that a BIOS starts. It says what a job would say that has one
/// step.
pub(crate) fn write_bios_disk(to: &Path) {
    let mut image = vec![0; 16 * 512];
    image[..FIRST_BLOCK.len()].copy_from_slice(&FIRST_BLOCK);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let said = b"@@ begin bios\n@@ step bios ok\n@@ end 0\n";
    image[8 * 512..][..said.len()].copy_from_slice(said);
    let file = File::create(to).expect("an image");
    file.write_all_at(&image, 0).expect("an image");
    file.set_len(SIZE).expect("an image");
}

#[test]
fn the_bios_boots_the_first_block_of_the_drive() {
    let served = Served::start_with(CONFIG, |dir| write_bios_disk(&dir.join("disk.img")));
    let options = Options {
        boot: Boot::Bios,
        ..Options::default()
    };
    // what the blocks say is all that there is of a job
    let report = served.run("vm", "", options);
    assert_eq!(report.steps.len(), 1);
    served.stop();
}
