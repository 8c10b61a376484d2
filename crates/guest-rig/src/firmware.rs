//! The UEFI firmware, and drives that it can boot from: no mounts, no root.
//!
//! [`Firmware::write_disk`] makes an image as an installer of an operating system leaves one: a
//! GUID partition table, a FAT file system with a boot loader, a kernel and its file system, and an
//! empty partition. The loader tells the kernel's user space, in a variable of the firmware, which
//! partition it came from.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::key_hash;
use crate::debian::{self, Program};
use crate::kernel::Bootable;

/// The firmware, a boot loader, and the programs that write partition tables and FAT file systems.
pub(crate) const PACKAGES: &[&str] = &["fdisk", "mtools", "ovmf", "systemd-boot-efi"];

/// Where the first partition starts: the usual place.
const ESP_START: u64 = 1 << 20;
/// The blocks that the partition table counts in.
const BLOCK: u64 = 512;
/// Bytes behind the first partition for a second one and the copy of the table.
const REST: u64 = 32 << 20;

/// The unpacked packages.
#[derive(Debug, Clone)]
pub struct Firmware {
    root: PathBuf,
}

impl Firmware {
    pub(crate) fn key() -> String {
        let recipe = format!("{PACKAGES:?} {}", debian::RELEASE);
        format!("firmware-{}", key_hash(&[recipe.as_bytes()]))
    }

    pub(crate) const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The firmware's code, which is only read.
    #[must_use]
    pub fn code(&self) -> PathBuf {
        self.root.join("usr/share/OVMF/OVMF_CODE_4M.fd")
    }

    /// The firmware's variables as it is delivered, to be copied for each machine.
    #[must_use]
    pub fn variables(&self) -> PathBuf {
        self.root.join("usr/share/OVMF/OVMF_VARS_4M.fd")
    }

    /// Writes a disk of `size` bytes to the file `image`, from which the firmware boots `system`
    /// with the words `command_line`. Its blocks have 512 bytes; the first partition's identity is
    /// `partition` (a UUID); the second one is empty.
    ///
    /// # Errors
    /// The file cannot be written, a program fails, or `size` is too small.
    pub fn write_disk(
        &self,
        image: &Path,
        size: u64,
        partition: &str,
        system: &Bootable,
        command_line: &str,
    ) -> Result<()> {
        let esp = size
            .checked_sub(ESP_START + REST)
            .context("a disk to boot from needs more room")?
            / BLOCK;
        File::create(image)
            .and_then(|file| file.set_len(size))
            .with_context(|| format!("cannot write {}", image.display()))?;
        let start = ESP_START / BLOCK;
        let table =
            format!("label: gpt\nstart={start}, size={esp}, type=U, uuid={partition}\ntype=L\n");
        feed(self.sfdisk().arg(image), &table)?;

        // mtools take a place in an image as FILE@@OFFSET
        let mut at = image.as_os_str().to_owned();
        let mut offset = String::new();
        write!(offset, "@@{ESP_START}")?;
        at.push(offset);
        let mtool = |name: &str, args: &[&str]| {
            let mut command = Program::private_as(&self.root, "usr/bin/mtools", name).command();
            command.arg("-i").arg(&at).args(args);
            command
        };
        let blocks = esp.to_string();
        run(&mut mtool("mformat", &["-F", "-T", &blocks, "::"]))?;
        run(&mut mtool(
            "mmd",
            &["::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries"],
        ))?;
        let loader = self
            .root
            .join("usr/lib/systemd/boot/efi/systemd-bootx64.efi");
        for (from, to) in [
            (&loader, "::/EFI/BOOT/BOOTX64.EFI"),
            (&system.image, "::/vmlinuz"),
            (&system.initramfs, "::/initrd"),
        ] {
            run(mtool("mcopy", &[]).arg(from).arg(to))?;
        }
        let entry = format!("linux /vmlinuz\ninitrd /initrd\noptions {command_line}\n");
        for (text, to) in [
            ("timeout 0\ndefault linux.conf\n", "::/loader/loader.conf"),
            (&entry, "::/loader/entries/linux.conf"),
        ] {
            feed(&mut mtool("mcopy", &["-", to]), text)?;
        }
        Ok(())
    }

    fn sfdisk(&self) -> Command {
        let mut command = Program::private(&self.root, "usr/sbin/sfdisk").command();
        command.args(["--quiet", "--no-reread", "--no-tell-kernel"]);
        command
    }
}

fn run(command: &mut Command) -> Result<()> {
    feed(command, "")
}

/// Runs `command` with `text` as its standard input.
fn feed(command: &mut Command, text: &str) -> Result<()> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    let fed = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        said.trim()
    );
    Ok(fed?)
}
