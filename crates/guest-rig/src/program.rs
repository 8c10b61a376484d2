//! Our own program inside a guest: an archive with it and its libraries, on a drive that the guest
//! unpacks (`program` in the guest).
//!
//! The libraries are those of the guest's packages: a guest's C library is no older than that of
//! the machine which the program was built on, and runs what was built with it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cpio::Archive;
use crate::files::write_drive;
use crate::{debian, server};

/// Where the program is in the guest.
const PLACE: &str = "usr/bin/nvmirage";

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
