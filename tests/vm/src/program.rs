//! Our own program inside a guest: an archive with it and its libraries, on a drive that the guest
//! unpacks (`program` in the guest).
//!
//! The libraries are those of the guest's packages: a guest's C library is no older than that of
//! the machine which the program was built on, and runs what was built with it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cpio::Archive;
use crate::{debian, server};

/// Where the program is in the guest.
const PLACE: &str = "usr/bin/nvmirage";
/// The size of a drive is a multiple of this.
const SECTOR: usize = 512;

/// Writes the archive to the file `to`; `root` has the guest's packages.
///
/// # Errors
/// There is no program ([`server::program`]), the packages lack one of its libraries, or a file
/// cannot be read or written.
pub(crate) fn write(root: &Path, to: &Path) -> Result<()> {
    let program = server::program()?;
    let path = program
        .to_str()
        .context("the program's path is not UTF-8")?;
    let mut archive = Archive::new(Vec::new());
    let content = fs::read(&program).with_context(|| format!("cannot read {path}"))?;
    archive.file(PLACE, true, &content)?;
    // An absolute path is the program's own and not one of the packages'.
    for library in debian::libraries(root, path)? {
        let inside = library
            .strip_prefix(root)
            .context("a library lies elsewhere")?;
        let inside = inside.to_str().context("a library's path is not UTF-8")?;
        archive.file(inside, false, &fs::read(&library)?)?;
    }
    write_drive(archive, to)
}

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

fn write_drive(archive: Archive<Vec<u8>>, to: &Path) -> Result<()> {
    let mut content = archive.finish()?;
    content.resize(content.len().next_multiple_of(SECTOR), 0);
    let file = File::create(to).with_context(|| format!("cannot create {}", to.display()))?;
    let mut file = BufWriter::new(file);
    file.write_all(&content)?;
    Ok(file.flush()?)
}
