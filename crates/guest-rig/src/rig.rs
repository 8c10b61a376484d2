//! All that a guest is made of: QEMU, kernels, a file system of programs, and a firmware, each in
//! the cache or from the system.
//!
//! QEMU comes from the `PATH` where it is new enough to have the `vfio-user-pci` device, else from
//! Debian's backports; the guest's kernels and programs always come from Debian's packages, so that
//! the same guest runs everywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::apt::{
    GUEST_PACKAGES, OLDER_QEMU_PACKAGES, QEMU_NEEDED, QEMU_PACKAGES, guest_key, older_qemu_key,
    open_apt, open_apt_of,
};
use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Program};
use crate::firmware::{self, Firmware};
use crate::kernel::{Bootable, Kernel};
use crate::qemu::{self, OLDER_VERSION, Qemu};
use crate::{libnbd, libvirt, prometheus, systemd};

/// The parts of a guest. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Rig {
    cache: Cache,
    /// The root of the private QEMU; none where the system's is used.
    qemu: Option<PathBuf>,
    /// The root of the guest's packages.
    guest: PathBuf,
}

const MISSING: &str = "the guests' programs are missing: run `cargo xtask setup`";

impl Rig {
    /// Finds what [`Rig::prepare`] has fetched.
    ///
    /// # Errors
    /// Something has not been fetched: says how to.
    pub fn locate() -> Result<Self> {
        let cache = Cache::open()?;
        let qemu = match system_qemu() {
            Some(_) => None,
            None => Some(cache.get(&qemu_key()).context(MISSING)?),
        };
        let guest = cache.get(&guest_key()).context(MISSING)?;
        Ok(Self { cache, qemu, guest })
    }

    /// Fetches whatever is missing of a guest with the kernel of the release, and says what it is
    /// doing.
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
        let rig = Self { cache, qemu, guest };
        rig.prepare_kernel(Kernel::Stable, note)?;
        Ok(rig)
    }

    /// Fetches whatever is missing of all guests that tests use: all kernels, and the firmware.
    ///
    /// # Errors
    /// As [`Rig::prepare`].
    pub fn prepare_all(note: Note<'_>) -> Result<Self> {
        let rig = Self::prepare(note)?;
        for kernel in Kernel::ALL {
            rig.prepare_kernel(kernel, note)?;
        }
        rig.cache.ensure(&Firmware::key(), note, fetch_firmware)?;
        prometheus::prepare(&rig.cache, note)?;
        libnbd::prepare(&rig.cache, note)?;
        libvirt::prepare(&rig.cache, note)?;
        rig.cache
            .ensure(&older_qemu_key(), note, fetch_older_qemu)?;
        let packages = rig.cache.ensure(&systemd_key(), note, fetch_systemd)?;
        Kernel::Stable.get_systemd(&rig.cache, &packages, &systemd_key(), note)?;
        Ok(rig)
    }

    fn prepare_kernel(&self, kernel: Kernel, note: Note<'_>) -> Result<()> {
        kernel.fetch(&self.cache, &self.guest, open_apt, note)?;
        // its file system is made now and not by the first guest
        kernel.get(&self.cache, &self.guest, &guest_key(), note)?;
        Ok(())
    }

    /// The kernel `kernel`, and the file system that a guest with it starts from.
    ///
    /// # Errors
    /// It has not been fetched: says how to.
    pub fn kernel(&self, kernel: Kernel) -> Result<Bootable> {
        kernel
            .get(&self.cache, &self.guest, &guest_key(), &mut |_| {})?
            .context(MISSING)
    }

    /// The release's kernel, and the file system of a guest whose first process is systemd.
    ///
    /// # Errors
    /// It has not been fetched: says how to.
    pub fn systemd(&self) -> Result<Bootable> {
        let packages = self.cache.get(&systemd_key()).context(MISSING)?;
        Kernel::Stable
            .get_systemd(&self.cache, &packages, &systemd_key(), &mut |_| {})?
            .context(MISSING)
    }

    /// The firmware.
    ///
    /// # Errors
    /// It has not been fetched: says how to.
    pub fn firmware(&self) -> Result<Firmware> {
        let root = self.cache.get(&Firmware::key()).context(MISSING)?;
        Ok(Firmware::at(root))
    }

    /// A program of QEMU: `qemu-system-x86_64`, `qemu-img`, `qemu-io`, `qemu-storage-daemon`.
    #[must_use]
    pub fn qemu(&self, name: &str) -> Program {
        match &self.qemu {
            Some(root) => qemu::private(root, name),
            None => Program::system(name.into()),
        }
    }

    /// The QEMU that runs guests, of one of the versions that they have.
    ///
    /// # Errors
    /// It has not been fetched: says how to.
    pub(crate) fn emulator(&self, version: Qemu) -> Result<Program> {
        const EMULATOR: &str = "qemu-system-x86_64";
        match version {
            Qemu::Current => Ok(self.qemu(EMULATOR)),
            Qemu::Older => {
                let root = self.cache.get(&older_qemu_key()).context(MISSING)?;
                Ok(qemu::private(&root, EMULATOR))
            }
        }
    }

    /// Writes our own program, with its libraries, to the file `to`, which a guest can unpack.
    ///
    /// # Errors
    /// There is no program, or it cannot be read or written.
    pub(crate) fn write_program(&self, to: &Path) -> Result<()> {
        crate::program::write(&self.guest, to)
    }

    /// A program of the guest's packages, such as `usr/sbin/e2fsck`, to be run on this machine.
    #[must_use]
    pub fn guest_program(&self, path: &str) -> Program {
        Program::private(&self.guest, path)
    }
}

fn qemu_key() -> String {
    format!(
        "qemu-{}",
        key_hash(&[format!("{QEMU_PACKAGES:?} {}", debian::BACKPORTS).as_bytes()])
    )
}

fn fetch_qemu(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.unpack_closure(debian::BACKPORTS, QEMU_PACKAGES, dir, note)?;
    let version = qemu::version(&Program::private(dir, "usr/bin/qemu-system-x86_64"))
        .context("the QEMU that was fetched does not run")?;
    ensure!(
        version >= QEMU_NEEDED,
        "Debian's backports have QEMU {version:?}, and {QEMU_NEEDED:?} is needed"
    );
    note(&format!("QEMU {}.{} is in place", version.0, version.1));
    apt.close()
}

fn fetch_older_qemu(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt_of(debian::OLDER_SUITES, dir, note)?;
    apt.unpack_closure(debian::OLDER_RELEASE, OLDER_QEMU_PACKAGES, dir, note)?;
    let version = qemu::version(&Program::private(dir, "usr/bin/qemu-system-x86_64"))
        .context("the older QEMU that was fetched does not run")?;
    ensure!(
        version == OLDER_VERSION,
        "Debian's {} has QEMU {version:?}, and {OLDER_VERSION:?} is needed",
        debian::OLDER_RELEASE
    );
    apt.close()
}

fn fetch_guest(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.unpack_closure(debian::RELEASE, GUEST_PACKAGES, dir, note)?;
    apt.close()
}

fn fetch_firmware(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.unpack_closure(debian::RELEASE, firmware::PACKAGES, dir, note)?;
    apt.close()
}

fn systemd_key() -> String {
    let recipe = format!("{:?} {}", systemd::PACKAGES, debian::RELEASE);
    format!("systemd-{}", key_hash(&[recipe.as_bytes()]))
}

fn fetch_systemd(dir: &Path, note: Note<'_>) -> Result<()> {
    let apt = open_apt(dir, note)?;
    apt.install_closure(systemd::PACKAGES, dir, note)?;
    apt.close()
}

/// The version of the system's QEMU, where all its programs are there and new enough.
fn system_qemu() -> Option<String> {
    debian::on_path("qemu-img").and(debian::on_path("qemu-io"))?;
    let program = debian::on_path("qemu-system-x86_64")?;
    let version = qemu::version(&Program::system(program))?;
    (version >= QEMU_NEEDED).then(|| format!("{}.{}", version.0, version.1))
}
