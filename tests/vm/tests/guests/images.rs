//! Images of drives, as programs on the host see them that do not know nvmirage.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::served::rig;

/// Checks the ext4 file system that lies at `offset` of the image, without writing.
pub(crate) fn check_ext4(image: &Path, offset: u64) {
    let output = rig()
        .guest_program("usr/sbin/e2fsck")
        .command()
        .args(["-fn", &format!("{}?offset={offset}", image.display())])
        .output()
        .expect("e2fsck starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "e2fsck finds faults:\n{said}");
    assert!(said.contains("Pass 5"), "e2fsck did not check:\n{said}");
}

/// The file `path` of the ext4 file system at `offset` of the image.
pub(crate) fn ext4_file(image: &Path, offset: u64, path: &str) -> Vec<u8> {
    let output = rig()
        .guest_program("usr/sbin/debugfs")
        .command()
        .args(["-R", &format!("cat {path}")])
        .arg(format!("{}?offset={offset}", image.display()))
        .output()
        .expect("debugfs starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "debugfs fails:\n{said}");
    output.stdout
}

/// `len` bytes at `offset` of the image.
pub(crate) fn bytes(image: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut file = fs::File::open(image).expect("the image opens");
    file.seek(SeekFrom::Start(offset)).expect("seek");
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes)
        .expect("the image has the bytes");
    bytes
}

/// Bytes that the file system has set aside for the image.
pub(crate) fn allocated(image: &Path) -> u64 {
    fs::metadata(image).expect("the image is there").blocks() * 512
}
