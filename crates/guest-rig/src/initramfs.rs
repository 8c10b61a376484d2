//! The guest's file system: chosen programs of the guest closure and modules of its kernel with all
//! that they need, and our own scripts.
//!
//! It lives in memory from the start, so a guest needs no disk of its own: every drive that it sees
//! is under test.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::cpio::Archive;
use crate::debian;

/// Programs in the guest, as paths in the closure, with further names that each goes by.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("usr/bin/busybox", &[]),
    // Not busybox's shell, which prefers its own small versions of programs to those in the PATH.
    ("usr/bin/dash", &["usr/bin/sh"]),
    ("usr/bin/fallocate", &[]),
    ("usr/bin/fio", &[]),
    ("usr/bin/kmod", &["usr/sbin/modprobe", "usr/sbin/lsmod"]),
    ("usr/bin/lspci", &[]),
    ("usr/bin/sqlite3", &[]),
    ("usr/sbin/blkdiscard", &[]),
    ("usr/sbin/blkzone", &[]),
    ("usr/sbin/e2fsck", &["usr/sbin/fsck.ext4"]),
    ("usr/sbin/kexec", &[]),
    ("usr/sbin/losetup", &[]),
    ("usr/sbin/mke2fs", &["usr/sbin/mkfs.ext4"]),
    ("usr/sbin/mkfs.xfs", &[]),
    ("usr/sbin/mkzonefs", &["usr/sbin/mkfs.zonefs"]),
    ("usr/sbin/nbd-client", &[]),
    ("usr/sbin/nvme", &[]),
    ("usr/sbin/resize2fs", &[]),
    ("usr/sbin/tlshd", &[]),
    ("usr/sbin/xfs_repair", &[]),
];

/// Files that those programs read.
const FILES: &[&str] = &["etc/mke2fs.conf"];

/// Modules of the kernel; the NVMe driver and ext4 are built in.
pub(crate) const MODULES: &[&str] = &[
    "aesni-intel",
    "efivarfs",
    "gcm",
    "loop",
    "nbd",
    "null_blk",
    "nvme-tcp",
    "nvmet-tcp",
    "qemu_fw_cfg",
    "tls",
    "ublk_drv",
    "vfio-pci",
    "vfio_iommu_type1",
    "virtio_blk",
    "virtio_net",
    "xfs",
    "zonefs",
];

const INIT: &str = include_str!("../guest/init");
const STEPS: &str = include_str!("../guest/steps.sh");

/// All that goes into the file system beside the closure itself: the key of what [`write`] makes.
#[must_use]
pub fn recipe() -> String {
    format!("{PROGRAMS:?} {FILES:?} {MODULES:?} {INIT} {STEPS}")
}

/// Content of a path.
pub(crate) enum Node {
    Directory,
    File { program: bool, content: Vec<u8> },
    Link(String),
}

/// Every path of the file system, parents before children since paths sort that way.
#[derive(Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    pub(crate) fn add(&mut self, path: &str, node: Node) {
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.nodes.contains_key(parent)
        {
            self.add(parent, Node::Directory);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    pub(crate) fn copy(&mut self, root: &Path, path: &str, program: bool) -> Result<()> {
        let content = fs::read(root.join(path))
            .with_context(|| format!("cannot read {path} of the guest"))?;
        self.add(path, Node::File { program, content });
        Ok(())
    }

    /// Writes all of it.
    pub(crate) fn write(&self, mut archive: Archive<impl Write>) -> Result<()> {
        for (path, node) in &self.nodes {
            match node {
                Node::Directory => archive.directory(path)?,
                Node::File { program, content } => archive.file(path, *program, content)?,
                Node::Link(target) => archive.link(path, target)?,
            }
        }
        archive.finish()?;
        Ok(())
    }
}

/// Writes the file system to the file `to`: programs of the closure in `root`, and modules of the
/// kernel `release` in `kernel`.
///
/// # Errors
/// A program, library or module is missing, or a file cannot be read or written.
pub fn write(root: &Path, kernel: &Path, release: &str, to: &Path) -> Result<()> {
    let mut tree = Tree::default();
    for directory in [
        "dev",
        "mnt",
        "proc",
        "root",
        "run",
        "sys",
        "tmp",
        "usr/bin",
        "usr/lib64",
        "usr/sbin",
    ] {
        tree.add(directory, Node::Directory);
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        tree.add(link, Node::Link(format!("usr/{link}")));
    }
    for (path, names) in PROGRAMS {
        add_program(&mut tree, root, path, names)?;
    }
    for path in FILES {
        tree.copy(root, path, false)?;
    }
    add_modules(&mut tree, kernel, release)?;
    tree.add(
        "init",
        Node::File {
            program: true,
            content: INIT.into(),
        },
    );
    tree.add(
        "usr/lib/steps.sh",
        Node::File {
            program: false,
            content: STEPS.into(),
        },
    );

    let file = fs::File::create(to).with_context(|| format!("cannot create {}", to.display()))?;
    tree.write(Archive::new(BufWriter::new(file)))
}

fn add_program(tree: &mut Tree, root: &Path, path: &str, names: &[&str]) -> Result<()> {
    tree.copy(root, path, true)?;
    for name in names {
        tree.add(name, Node::Link(format!("/{path}")));
    }
    if path.ends_with("/busybox") {
        return Ok(()); // static
    }
    for library in debian::libraries(root, path)? {
        let inside = library
            .strip_prefix(root)
            .expect("libraries are inside the closure");
        let inside = inside.to_str().context("a library's path is not UTF-8")?;
        if !tree.nodes.contains_key(inside) {
            tree.copy(root, inside, true)?;
        }
        if inside.ends_with(debian::LOADER) {
            tree.add(
                "usr/lib64/ld-linux-x86-64.so.2",
                Node::Link(format!("/{inside}")),
            );
        }
    }
    Ok(())
}

/// Adds the modules, what they depend on, and the indexes that modprobe reads.
pub(crate) fn add_modules(tree: &mut Tree, root: &Path, release: &str) -> Result<()> {
    let folder = format!("usr/lib/modules/{release}");
    let index = fs::read_to_string(root.join(&folder).join("modules.dep"))
        .context("the guest's kernel has no index of its modules")?;
    for module in MODULES {
        let line = index
            .lines()
            .find(|line| module_name(line) == Some(module.replace('-', "_")))
            .with_context(|| format!("the guest's kernel has no module {module}"))?;
        // "kernel/a.ko.xz: kernel/b.ko.xz kernel/c.ko.xz", with all dependencies and not only the
        // direct ones
        for file in line.split([':', ' ']).filter(|word| !word.is_empty()) {
            tree.copy(root, &format!("{folder}/{file}"), false)?;
        }
    }
    for entry in fs::read_dir(root.join(&folder))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("modules.") && name.ends_with(".bin") {
            tree.copy(root, &format!("{folder}/{name}"), false)?;
        }
    }
    Ok(())
}

/// The name of the module that a line of `modules.dep` is about.
fn module_name(line: &str) -> Option<String> {
    let file = line.split(':').next()?.rsplit('/').next()?;
    Some(file.split('.').next()?.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_children() {
        let mut tree = Tree::default();
        tree.add("usr/lib/x/y", Node::Link("z".into()));
        let paths: Vec<_> = tree.nodes.keys().map(String::as_str).collect();
        assert_eq!(paths, ["usr", "usr/lib", "usr/lib/x", "usr/lib/x/y"]);
    }

    #[test]
    fn modules_are_found_under_both_spellings() {
        let line = "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz";
        assert_eq!(module_name(line).as_deref(), Some("vfio_pci"));
    }
}
