//! Images that hold something other than what a guest would look for.

use std::fs;

use crate::world::World;

/// A raw image with a GUID partition table for blocks of that many bytes: a protective entry in the
/// first block, and the header in the second one (UEFI 2.10, 5.2.3 and 5.3.2).
fn partitioned(block: usize) -> Vec<u8> {
    let mut image = vec![0; 8 << 20];
    let blocks = u32::try_from(image.len() / block - 1).unwrap();
    let mut entry = [0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0];
    entry[12..].copy_from_slice(&blocks.to_le_bytes());
    image[446..462].copy_from_slice(&entry);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image[block..block + 8].copy_from_slice(b"EFI PART");
    image
}

/// Log line of a server about an image that it serves with these blocks.
fn said(image: &[u8], lba_size: u32) -> String {
    let world = World::new();
    fs::write(world.path("disk.img"), image).unwrap();
    let server = world.serve_media(&format!("file:path=disk.img,lba_size={lba_size}"));
    let log = server.log();
    server.stop();
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    warnings.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_partition_table_for_other_blocks_is_reported_with_the_size_to_write() {
    let warning = said(&partitioned(512), 4096);
    assert!(
        warning.contains("disk.img") && warning.contains("write lba_size = 512"),
        "{warning}"
    );
    let warning = said(&partitioned(4096), 512);
    assert!(warning.contains("write lba_size = 4096"), "{warning}");
    for size in [512, 4096] {
        assert_eq!(said(&partitioned(size as usize), size), "");
    }
    assert_eq!(said(&vec![0; 8 << 20], 4096), "");
}

#[test]
fn an_image_of_another_format_is_reported() {
    let mut image = vec![0; 8 << 20];
    image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    let warning = said(&image, 4096);
    assert!(
        warning.contains("a qcow2 image") && warning.contains("qemu-img convert -O raw"),
        "{warning}"
    );
}

/// The length of such an image need not be a multiple of 512 bytes, and must not be made one.
#[test]
fn an_image_of_another_format_and_an_odd_length_is_named() {
    let world = World::new();
    let mut image = vec![0; 196_616];
    image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    fs::write(world.path("disk.qcow2"), &image).unwrap();
    let (listen, control) = (world.vfio_user("nvme.sock"), world.unix("control"));
    let media = "file:path=disk.qcow2";
    let error = world.fails(&[
        "serve",
        "--media",
        media,
        "--listen",
        &listen,
        "--control",
        &control,
    ]);
    assert!(
        error.contains("is a qcow2 image: convert it to a raw image"),
        "{error}"
    );
    assert!(!error.contains("truncate"), "{error}");
    assert!(fs::read(world.path("disk.qcow2")).unwrap() == image);
}

#[test]
fn up_takes_the_size_of_blocks() {
    let world = World::new();
    fs::write(world.path("disk.img"), partitioned(512)).unwrap();
    let server = world.serve_media("ram:size=1MiB");
    let up = |name: &str, more: &[&str]| {
        let image = world.path("disk.img");
        let listen = world.vfio_user(&format!("{name}.sock"));
        let args = [
            "up",
            "file",
            "--size",
            "8MiB",
            "--path",
            image.to_str().unwrap(),
        ];
        let named = ["--name", name, "--listen", &listen];
        let ran = world.run(&world.steer(&[&args[..], &named, more].concat()));
        assert!(ran.status.success(), "{}", ran.err);
        let shown = world.steer(&["show", "namespace", name, "--json"]);
        let size = world.json(&shown)["lba_size"].clone();
        for kind in ["controller", "namespace", "media"] {
            world.ok(&world.steer(&["delete", kind, name]));
        }
        (size, ran.err)
    };
    let (size, err) = up("a", &[]);
    assert_eq!(size, 4096);
    assert!(err.contains("start again with --lba-size 512"), "{err}");
    let (size, err) = up("b", &["--lba-size", "512"]);
    assert_eq!(size, 512);
    assert!(!err.contains("lba-size"), "{err}");
    let wrong = world.steer(&["up", "ram", "--size", "8MiB", "--lba-size", "1024"]);
    assert!(world.run(&wrong).err.contains("write 512 or 4096"));
    server.stop();
}
