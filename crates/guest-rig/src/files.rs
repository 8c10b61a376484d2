//! Files inside a guest: an archive on a drive that the guest unpacks.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cpio::Archive;

/// The size of a drive is a multiple of this.
const SECTOR: usize = 512;

/// Writes an archive with `files`, each under its own name, to the file `to`.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn write_files(files: &[PathBuf], to: &Path) -> Result<()> {
    let mut archive = Archive::new(Vec::new());
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.context("a file has no name")?;
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        archive.file(name, false, &content)?;
    }
    write_drive(archive, to)
}

/// Writes an archive as a drive to the file `to`.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_drive(archive: Archive<Vec<u8>>, to: &Path) -> Result<()> {
    let mut content = archive.finish()?;
    content.resize(content.len().next_multiple_of(SECTOR), 0);
    let file = File::create(to).with_context(|| format!("cannot create {}", to.display()))?;
    let mut file = BufWriter::new(file);
    file.write_all(&content)?;
    Ok(file.flush()?)
}
