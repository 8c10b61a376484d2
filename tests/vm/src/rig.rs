//! All that a guest is made of: QEMU, a kernel, and a file system of programs, each in the cache or
//! from the system.
//!
//! QEMU comes from the `PATH` where it is new enough to have the `vfio-user-pci` device, else from
//! Debian's backports; the guest's kernel and programs always come from Debian's packages, so that
//! the same guest runs everywhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Apt, Program};
use crate::initramfs;

/// The first QEMU with the device `vfio-user-pci`.
const QEMU_NEEDED: (u32, u32) = (10, 1);
/// What is fetched where the system's QEMU is older.
const QEMU_PACKAGES: &[&str] = &["qemu-system-x86", "qemu-utils", "qemu-block-extra"];
/// The programs of the guest; the kernel comes beside them.
const GUEST_PACKAGES: &[&str] = &[
    "busybox-static",
    "dash",
    "e2fsprogs",
    "fio",
    "kmod",
    "nvme-cli",
    "pciutils",
    "util-linux",
];
/// Stands for the newest kernel of the release: small, with the NVMe driver and ext4 built in.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// The parts of a guest. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Rig {
    /// The root of the private QEMU; none where the system's is used.
    qemu: Option<PathBuf>,
    /// The root of the guest's packages.
    guest: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Rig {
    /// Finds what `cargo xtask setup` has fetched.
    ///
    /// # Errors
    /// Something has not been fetched: says how to.
    pub fn locate() -> Result<Self> {
        let missing = "the guests' programs are missing: run `cargo xtask setup`";
        let cache = Cache::open()?;
        let qemu = match system_qemu() {
            Some(_) => None,
            None => Some(cache.get(&qemu_key()).context(missing)?),
        };
        let guest = cache.get(&guest_key()).context(missing)?;
        Self::assemble(&cache, qemu, &guest, &mut |_| {})
    }

    /// Fetches whatever is missing, and says what it is doing.
    ///
    /// # Errors
    /// This is not a Debian on x86-64 and something is missing, or fetching fails.
    pub fn prepare(note: Note<'_>) -> Result<Self> {
        let cache = Cache::open()?;
        let qemu = match system_qemu() {
            Some(version) => {
                note(&format!("QEMU {version} of the system"));
                None
            }
            None => Some(cache.ensure(&qemu_key(), note, fetch_qemu)?),
        };
        let guest = cache.ensure(&guest_key(), note, fetch_guest)?;
        Self::assemble(&cache, qemu, &guest, note)
    }

    fn assemble(
        cache: &Cache,
        qemu: Option<PathBuf>,
        guest: &Path,
        note: Note<'_>,
    ) -> Result<Self> {
        let release = kernel_release(guest)?;
        let recipe = initramfs::recipe();
        let key = format!(
            "initramfs-{}",
            key_hash(&[guest_key().as_bytes(), recipe.as_bytes()])
        );
        let made = cache.ensure(&key, note, |dir, note| {
            note("building the guest's file system");
            initramfs::write(guest, &release, &dir.join(INITRAMFS))
        })?;
        let kernel = guest.join(format!("boot/vmlinuz-{release}"));
        Ok(Self {
            qemu,
            guest: guest.to_owned(),
            kernel,
            initramfs: made.join(INITRAMFS),
        })
    }

    /// A program of QEMU: `qemu-system-x86_64`, `qemu-img`, `qemu-io`, `qemu-storage-daemon`.
    #[must_use]
    pub fn qemu(&self, name: &str) -> Program {
        let Some(root) = &self.qemu else {
            return Program::system(name.into());
        };
        let program = Program::private(root, &format!("usr/bin/{name}"));
        if !name.starts_with("qemu-system") {
            return program;
        }
        let share = root.join("usr/share");
        program
            .with("-L")
            .with(share.join("qemu"))
            .with("-L")
            .with(share.join("seabios"))
    }

    /// A program of the guest's packages, such as `usr/sbin/e2fsck`, to be run on this machine.
    #[must_use]
    pub fn guest_program(&self, path: &str) -> Program {
        Program::private(&self.guest, path)
    }

    /// The guest's kernel.
    #[must_use]
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// The guest's file system.
    #[must_use]
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }
}

const INITRAMFS: &str = "initramfs.cpio";

fn qemu_key() -> String {
    format!(
        "qemu-{}",
        key_hash(&[format!("{QEMU_PACKAGES:?} {}", debian::BACKPORTS).as_bytes()])
    )
}

fn guest_key() -> String {
    let recipe = format!("{GUEST_PACKAGES:?} {KERNEL_PACKAGE} {}", debian::RELEASE);
    format!("guest-{}", key_hash(&[recipe.as_bytes()]))
}

fn fetch_qemu(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.unpack_closure(debian::BACKPORTS, QEMU_PACKAGES, dir, note)?;
    let version = qemu_version(&Program::private(dir, "usr/bin/qemu-system-x86_64"))
        .context("the QEMU that was fetched does not run")?;
    ensure!(
        version >= QEMU_NEEDED,
        "Debian's backports have QEMU {version:?}, and {QEMU_NEEDED:?} is needed"
    );
    note(&format!("QEMU {}.{} is in place", version.0, version.1));
    Ok(fs::remove_dir_all(dir.join(APT))?)
}

fn fetch_guest(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    let kernel = apt.first_dependency(KERNEL_PACKAGE)?;
    apt.unpack_one(&kernel, dir, note)?;
    apt.unpack_closure(debian::RELEASE, GUEST_PACKAGES, dir, note)?;
    // Installing the kernel's package would have done this.
    let release = kernel_release(dir)?;
    let output = Program::private_as(dir, "usr/bin/kmod", "depmod")
        .command()
        .arg("-b")
        .args([dir.as_os_str(), release.as_ref()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "depmod failed: {}", said.trim());
    Ok(fs::remove_dir_all(dir.join(APT))?)
}

/// The folder of apt's own state beside what it fetches.
const APT: &str = "apt";

fn open_apt(dir: &Path, note: Note<'_>) -> Result<Apt> {
    if !debian::is_debian() {
        let (major, minor) = QEMU_NEEDED;
        bail!(
            "this is not a Debian on x86-64, where all of it is fetched: install QEMU {major}.{minor} or newer ({}), \
             and unpack Debian's packages {KERNEL_PACKAGE} {} with their dependencies into {}",
            QEMU_PACKAGES.join(" "),
            GUEST_PACKAGES.join(" "),
            Cache::open()?.path(&guest_key()).display()
        );
    }
    Apt::open(dir.join(APT), note)
}

/// The release of the one kernel in a guest's closure.
fn kernel_release(guest: &Path) -> Result<String> {
    for entry in fs::read_dir(guest.join("boot"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(release) = name.strip_prefix("vmlinuz-") {
            return Ok(release.to_owned());
        }
    }
    bail!("the guest's closure in {} has no kernel", guest.display())
}

/// The version of the system's QEMU, where all its programs are there and new enough.
fn system_qemu() -> Option<String> {
    debian::on_path("qemu-img").and(debian::on_path("qemu-io"))?;
    let program = debian::on_path("qemu-system-x86_64")?;
    let version = qemu_version(&Program::system(program))?;
    (version >= QEMU_NEEDED).then(|| format!("{}.{}", version.0, version.1))
}

fn qemu_version(program: &Program) -> Option<(u32, u32)> {
    let output = program.command().arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// "QEMU emulator version 11.1.3 (Debian …)": major and minor.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split("version ").nth(1)?.split(['.', ' ']);
    Some((
        numbers.next()?.parse().ok()?,
        numbers.next()?.trim().parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_qemu() {
        let debian = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\nCopyright";
        assert_eq!(parse_version(debian), Some((11, 1)));
        assert_eq!(parse_version("QEMU emulator version 10.1\n"), Some((10, 1)));
        assert_eq!(parse_version("QEMU emulator version 7.2.0\n"), Some((7, 2)));
        assert_eq!(parse_version("no such thing"), None);
    }
}
