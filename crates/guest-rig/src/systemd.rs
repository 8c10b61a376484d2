//! The file system of guests whose first process is systemd: Debian's packages as `apt-get` would
//! install them, with the list of installed ones, so that `dpkg` installs ours in the guest for
//! real.
//!
//! Maintainer scripts are not run: what the few that matter do is in [`write`]. Like other guests'
//! it lives in memory.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cpio::Archive;
use crate::initramfs::{MODULES, Node, Tree, add_modules};

/// Packages of such a guest, beside those that these depend on.
pub(crate) const PACKAGES: &[&str] = &[
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "cpio",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "init-system-helpers",
    "kmod",
    "libc-bin",
    "mount",
    "passwd",
    "perl-base",
    "procps",
    "sed",
    "systemd",
    "systemd-sysv",
    "tar",
    "udev",
    "util-linux",
];

/// Paths that a guest never reads, and that would only take memory.
const LEFT_OUT: &[&str] = &[
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/i18n",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/zsh",
    "usr/lib/udev/hwdb.d",
];

/// Units that are of no use here, and take seconds of an emulated processor.
const MASKED: &[&str] = &[
    "console-getty.service",
    "getty-static.service",
    "getty@tty1.service",
    "ldconfig.service",
    "serial-getty@ttyS0.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-update-done.service",
];

const JOB: &str = include_str!("../guest/systemd/job");
const JOB_SERVICE: &str = include_str!("../guest/systemd/job.service");
const STEPS: &str = include_str!("../guest/steps.sh");

/// All that goes into the file system beside the packages: the key of what [`write`] makes.
pub(crate) fn recipe() -> String {
    format!("{LEFT_OUT:?} {MASKED:?} {MODULES:?} {JOB} {JOB_SERVICE} {STEPS}")
}

/// Writes the file system to the file `to`: the packages in `root`, and modules of the kernel
/// `release` in `kernel`.
///
/// # Errors
/// A file is missing, or cannot be read or written.
pub(crate) fn write(root: &Path, kernel: &Path, release: &str, to: &Path) -> Result<()> {
    let mut tree = Tree::default();
    for directory in ["dev", "proc", "root", "run", "sys", "tmp"] {
        tree.add(directory, Node::Directory);
    }
    for directory in ["etc", "usr", "var"] {
        add_folder(&mut tree, root, directory)?;
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        tree.add(link, Node::Link(format!("usr/{link}")));
    }
    add_modules(&mut tree, kernel, release)?;
    // what maintainer scripts would have done
    for name in ["passwd", "group"] {
        let master = root.join(format!("usr/share/base-passwd/{name}.master"));
        tree.add(&format!("etc/{name}"), text(&read(&master)?, false));
    }
    // any, or this would be a first boot, at which systemd enables what it likes
    let machine = "0123456789abcdef0123456789abcdef\n";
    tree.add("etc/machine-id", text(machine, false));
    let units = "etc/systemd/system";
    for unit in MASKED {
        tree.add(&format!("{units}/{unit}"), Node::Link("/dev/null".into()));
    }
    let target = "/usr/lib/systemd/system/multi-user.target".to_owned();
    tree.add(&format!("{units}/default.target"), Node::Link(target));
    tree.add(&format!("{units}/job.service"), text(JOB_SERVICE, false));
    tree.add(
        &format!("{units}/multi-user.target.wants/job.service"),
        Node::Link("../job.service".into()),
    );
    tree.add("usr/lib/rig/job", text(JOB, true));
    tree.add("usr/lib/rig/steps.sh", text(STEPS, false));
    tree.add("init", Node::Link("usr/lib/systemd/systemd".into()));
    let file = File::create(to).with_context(|| format!("cannot create {}", to.display()))?;
    tree.write(Archive::new(BufWriter::new(file)))
}

fn text(content: &str, program: bool) -> Node {
    let content = content.into();
    Node::File { program, content }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Adds the folder `path` of `root` and all that is in it.
fn add_folder(tree: &mut Tree, root: &Path, path: &str) -> Result<()> {
    if LEFT_OUT.contains(&path) {
        return Ok(());
    }
    tree.add(path, Node::Directory);
    for entry in fs::read_dir(root.join(path))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a file's name is not UTF-8")?;
        let inside = format!("{path}/{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            add_folder(tree, root, &inside)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            let target = target.to_str().context("a link's target is not UTF-8")?;
            tree.add(&inside, Node::Link(target.to_owned()));
        } else {
            let program = entry.metadata()?.permissions().mode() & 0o111 != 0;
            tree.copy(root, &inside, program)?;
        }
    }
    Ok(())
}
