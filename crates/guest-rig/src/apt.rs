//! Packages that are fetched from Debian, and those to install where this is not Debian.

use std::path::Path;

use anyhow::{Result, bail};

use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Apt};
use crate::firmware::{self, Firmware};
use crate::kernel::{self, Kernel};

/// The folder of apt's own state beside what it fetches.
pub(crate) const APT: &str = "apt";
/// The first QEMU with the device `vfio-user-pci`.
pub(crate) const QEMU_NEEDED: (u32, u32) = (10, 1);
/// Packages that are fetched where the system's QEMU is older.
pub(crate) const QEMU_PACKAGES: &[&str] = &["qemu-system-x86", "qemu-utils", "qemu-block-extra"];
/// Packages that are fetched for guests of an older QEMU.
pub(crate) const OLDER_QEMU_PACKAGES: &[&str] = &["qemu-system-x86"];
/// The programs of the guest; the kernel comes beside them.
pub(crate) const GUEST_PACKAGES: &[&str] = &[
    "busybox-static",
    "dash",
    "e2fsprogs",
    "fio",
    "kexec-tools",
    "kmod",
    "ktls-utils",
    "nbd-client",
    "nvme-cli",
    "pciutils",
    "sqlite3",
    "util-linux",
    "xfsprogs",
    "zonefs-tools",
];

/// Where the cache has the programs of the guest.
pub(crate) fn guest_key() -> String {
    let recipe = format!("{GUEST_PACKAGES:?} {}", debian::RELEASE);
    format!("guest-{}", key_hash(&[recipe.as_bytes()]))
}

/// Where the cache has the older QEMU.
pub(crate) fn older_qemu_key() -> String {
    let recipe = format!("{OLDER_QEMU_PACKAGES:?} {}", debian::OLDER_RELEASE);
    format!("qemu-{}", key_hash(&[recipe.as_bytes()]))
}

/// Opens a state of apt in the folder `dir`, for the release that guests come from.
///
/// # Errors
/// This is not Debian: says what to install, and where to.
pub(crate) fn open_apt(dir: &Path, note: Note<'_>) -> Result<Apt> {
    open_apt_of(debian::SUITES, dir, note)
}

/// Opens a state of apt in the folder `dir`, for these suites.
///
/// # Errors
/// As [`open_apt`].
pub(crate) fn open_apt_of(suites: &[&str], dir: &Path, note: Note<'_>) -> Result<Apt> {
    if !debian::is_debian() {
        let (major, minor) = QEMU_NEEDED;
        let cache = Cache::open()?;
        bail!(
            "this is not a Debian on x86-64, where all of it is fetched: install QEMU {major}.{minor} or newer ({}), \
             and unpack Debian's packages {} with their dependencies into {}, {} into {}, those of {} in {} into {}, \
             and the kernels that {} stands for in {} and its backports into {}",
            QEMU_PACKAGES.join(" "),
            GUEST_PACKAGES.join(" "),
            cache.path(&guest_key()).display(),
            firmware::PACKAGES.join(" "),
            cache.path(&Firmware::key()).display(),
            OLDER_QEMU_PACKAGES.join(" "),
            debian::OLDER_RELEASE,
            cache.path(&older_qemu_key()).display(),
            kernel::PACKAGE,
            debian::RELEASE,
            Kernel::ALL
                .map(|kernel| cache.path(&kernel.key()).display().to_string())
                .join(" and "),
        );
    }
    Apt::open(dir.join(APT), suites, note)
}
