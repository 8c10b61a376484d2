//! Guests of pages: a `qemu-system-x86_64` for the page's `PATH`, which is the tests' QEMU with the
//! tests' guest, and the job by which that guest takes commands. And what checks a domain of
//! libvirt's.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;
use guest_rig::guest::command_line;
use guest_rig::{Kernel, Options, Rig, libvirt};

/// Puts the program and the job into a page's folder.
///
/// # Errors
/// The guests' parts have not been fetched, or a file cannot be written.
pub(crate) fn prepare(root: &Path) -> Result<()> {
    let rig = Rig::locate()?;
    let kernel = rig.kernel(Kernel::Stable)?;
    let options = Options {
        job: Some(String::new()),
        ..Options::default()
    };
    let qemu = rig.qemu("qemu-system-x86_64").command();
    let mut words = String::new();
    for word in std::iter::once(qemu.get_program()).chain(qemu.get_args()) {
        let _ = write!(words, "{} ", quoted(word));
    }
    let mut script = String::from("#!/bin/bash\n");
    for (name, value) in qemu.get_envs() {
        let value = value.unwrap_or_default();
        let _ = writeln!(script, "export {}={}", name.display(), quoted(value));
    }
    let _ = write!(
        script,
        "qemu=({words})\npage={}\nkernel={}\ninitramfs={}\nappend={}\n",
        quoted(root.as_os_str()),
        quoted(kernel.image.as_os_str()),
        quoted(kernel.initramfs.as_os_str()),
        quoted(command_line(&options).as_ref()),
    );
    script += include_str!("qemu.sh");
    write_program(&root.join("bin/qemu-system-x86_64"), &script)?;
    Ok(fs::write(root.join("guest.sh"), include_str!("guest.sh"))?)
}

/// The word as a shell reads it back.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// Puts libvirt's `virt-xml-validate` into a page's folder: what Debian's does, with the schema of
/// domains that was fetched.
///
/// # Errors
/// The schema has not been fetched, or the file cannot be written.
pub(crate) fn prepare_libvirt(root: &Path) -> Result<()> {
    let (xmllint, schema) = libvirt::domain_checker()?;
    let xmllint = xmllint.command();
    let mut script = String::from("#!/bin/sh\n[ \"$2\" = domain ] || exit 2\nexec ");
    for word in std::iter::once(xmllint.get_program()).chain(xmllint.get_args()) {
        let _ = write!(script, "{} ", quoted(word));
    }
    let _ = writeln!(
        script,
        "--noout --relaxng {} \"$1\"",
        quoted(schema.as_os_str())
    );
    write_program(&root.join("bin/virt-xml-validate"), &script)
}

fn write_program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script)?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}
