//! The kernels that guests run: the newest of a Debian release and the newest of its backports,
//! each a cache entry of its own, and for each the file system that a guest starts from.
//!
//! Not included: configuring and building kernels. They are those that Debian's users run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Apt, Program};
use crate::{initramfs, systemd};

/// Stands for the newest kernel of a suite: small, with the NVMe driver and ext4 built in.
pub(crate) const PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel that a guest can run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kernel {
    /// The release's: Linux 6.12, with its fixes.
    #[default]
    Stable,
    /// The newest of the release's backports: Linux 7 at this writing.
    Backports,
}

/// Files from which QEMU starts a guest.
#[derive(Debug, Clone)]
pub struct Bootable {
    /// The kernel, as a boot loader or a firmware takes it.
    pub image: PathBuf,
    /// The guest's file system, which has this kernel's modules.
    pub initramfs: PathBuf,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Stable, Self::Backports];

    const fn suite(self) -> &'static str {
        match self {
            Self::Stable => debian::RELEASE,
            Self::Backports => debian::BACKPORTS,
        }
    }

    /// The key of its cache entry.
    pub(crate) fn key(self) -> String {
        let recipe = format!("{PACKAGE} {}", self.suite());
        format!("kernel-{}", key_hash(&[recipe.as_bytes()]))
    }

    /// The kernel as the cache has it, with the file system made from the closure of programs in
    /// `programs`, whose key is `programs_key`; none where the kernel has not been fetched.
    pub(crate) fn get(
        self,
        cache: &Cache,
        programs: &Path,
        programs_key: &str,
        note: Note<'_>,
    ) -> Result<Option<Bootable>> {
        self.get_with(
            cache,
            programs_key,
            &initramfs::recipe(),
            note,
            |root, release, to| initramfs::write(programs, root, release, to),
        )
    }

    /// The kernel as the cache has it, with the file system that `write` makes of it, its release
    /// and `recipe`.
    fn get_with(
        self,
        cache: &Cache,
        programs_key: &str,
        recipe: &str,
        note: Note<'_>,
        write: impl FnOnce(&Path, &str, &Path) -> Result<()>,
    ) -> Result<Option<Bootable>> {
        let kernel_key = self.key();
        let Some(root) = cache.get(&kernel_key) else {
            return Ok(None);
        };
        let release = release(&root)?;
        let parts = [programs_key, &kernel_key, recipe].map(str::as_bytes);
        let key = format!("initramfs-{}", key_hash(&parts));
        let made = cache.ensure(&key, note, |dir, note| {
            note(&format!("building the file system of guests of {release}"));
            write(&root, &release, &dir.join(INITRAMFS))
        })?;
        Ok(Some(Bootable {
            image: image(&root, &release)?,
            initramfs: made.join(INITRAMFS),
        }))
    }

    /// The kernel as the cache has it, with the file system of a guest whose first process is
    /// systemd, made from the packages in `packages`, whose key is `packages_key`; none where the
    /// kernel has not been fetched.
    pub(crate) fn get_systemd(
        self,
        cache: &Cache,
        packages: &Path,
        packages_key: &str,
        note: Note<'_>,
    ) -> Result<Option<Bootable>> {
        self.get_with(
            cache,
            packages_key,
            &systemd::recipe(),
            note,
            |root, release, to| systemd::write(packages, root, release, to),
        )
    }

    /// Fetches it where the cache has none. `open_apt` makes a state of apt in the folder that it
    /// gets.
    pub(crate) fn fetch(
        self,
        cache: &Cache,
        programs: &Path,
        open_apt: impl FnOnce(&Path, Note<'_>) -> Result<Apt>,
        note: Note<'_>,
    ) -> Result<()> {
        cache.ensure(&self.key(), note, |dir, note| {
            let apt = open_apt(dir, note)?;
            let package = apt.first_dependency(PACKAGE, self.suite(), "linux-image-")?;
            apt.unpack_alone(&self.packages(&apt, package)?, dir, note)?;
            // Installing the package would have done this.
            let release = release(dir)?;
            let output = Program::private_as(programs, "usr/bin/kmod", "depmod")
                .command()
                .arg("-b")
                .args([dir.as_os_str(), release.as_ref()])
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "depmod failed: {}", said.trim());
            note(&format!("Linux {release} is in place"));
            apt.close()
        })?;
        Ok(())
    }

    /// The packages that make up the kernel of `image`: newer ones come in parts, all named after
    /// its release.
    fn packages(self, apt: &Apt, image: String) -> Result<Vec<String>> {
        let release = image
            .strip_prefix("linux-image-")
            .context("a kernel's package has another name")?
            .to_owned();
        let needed = apt.dependencies(&image, self.suite())?;
        let parts = needed.into_iter().filter(|name| name.ends_with(&release));
        Ok(parts.chain([image]).collect())
    }
}

const INITRAMFS: &str = "initramfs.cpio";

/// The release of the one kernel in `root`.
fn release(root: &Path) -> Result<String> {
    let modules = root.join("usr/lib/modules");
    let entry = fs::read_dir(&modules)
        .ok()
        .and_then(|mut entries| entries.next())
        .with_context(|| format!("{} has no kernel", root.display()))?;
    Ok(entry?.file_name().to_string_lossy().into_owned())
}

/// Where a package has its kernel: newer ones have it beside its modules.
fn image(root: &Path, release: &str) -> Result<PathBuf> {
    [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
    ]
    .into_iter()
    .map(|path| root.join(path))
    .find(|path| path.is_file())
    .with_context(|| format!("{} has no image of the kernel {release}", root.display()))
}
