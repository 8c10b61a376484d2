//! The laboratory's commands: their arguments, and what they print.

mod as_host;
pub mod bench;
pub mod calibrate;
pub mod clone;
mod complete;
pub mod conformance;
mod consent;
pub mod demo;
pub mod doctor;
pub mod drive;
pub mod explain;
pub mod fidelity;
pub mod floor;
pub mod identify;
pub mod kv;
pub mod migrate;
mod picture;
pub mod precondition;
mod set;
pub mod simulate;
pub mod trace;
pub mod wait;
pub mod zone;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use api::config::Size;
pub use complete::{presets, presets_and_kinds};
pub(crate) use terminal::error::UsageError;

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or has more than `most` bytes, as a device may.
pub(crate) fn read_at_most(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        bytes.len() as u64 <= most,
        "{shown} is larger than {most} bytes"
    );
    Ok(bytes)
}

/// The size of a modelled drive: whole sectors.
pub(crate) fn drive_size(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(size) if size == 0 || !size.is_multiple_of(512) => {
            Err(format!("{size} bytes is not a positive multiple of 512"))
        }
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_end_is_not_read_to_it() {
        let error = read_at_most(Path::new("/dev/zero"), 4096).unwrap_err();
        assert_eq!(error.to_string(), "/dev/zero is larger than 4096 bytes");
        assert_eq!(read_at_most(Path::new("/dev/null"), 4096).unwrap(), b"");
    }

    #[test]
    fn a_drive_has_whole_sectors() {
        assert_eq!(drive_size("1KiB"), Ok(Size(1024)));
        for wrong in ["0B", "513B", "x"] {
            assert!(drive_size(wrong).is_err(), "{wrong}");
        }
    }
}
