//! Users of a drive: mounts, swap, volumes on it, and processes that have it open.
//!
//! There are two checks. The system's tables name the users. In addition, every block device is
//! opened with O_EXCL, which the kernel refuses if a file system, swap or a volume uses it, even if
//! the table that names the user belongs to another container.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{System, line, names};

/// The drive whose users are wanted.
pub(super) struct Users<'a> {
    pub(super) system: &'a System,
    /// Folder of the PCI function.
    pub(super) folder: &'a Path,
    /// `nvme0`.
    pub(super) controllers: &'a [String],
    /// `nvme0n1`.
    pub(super) block_devices: &'a [String],
    pub(super) iommu_group: Option<u32>,
}

impl Users<'_> {
    /// All users that can be named, or a general statement for one that cannot.
    pub(super) fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let parts = parts(self.system, self.block_devices);
        words.extend(self.mounts(&parts));
        words.extend(self.swap(&parts));
        words.extend(parts.iter().flat_map(|part| self.volumes(part)));
        words.extend(self.processes(&parts));
        if words.is_empty() && parts.iter().any(|part| claim(self.system, part).is_err()) {
            words.push("the kernel, or another container (it is open exclusively)".to_owned());
        }
        words
    }

    fn mounts(&self, parts: &[String]) -> Vec<String> {
        let numbers: Vec<_> = parts
            .iter()
            .map(|part| line(&block(self.system, part).join("dev")))
            .collect();
        let text = fs::read_to_string(self.system.path("proc/self/mountinfo")).unwrap_or_default();
        let mut words = Vec::new();
        for mount in text.lines().filter_map(Mount::parse) {
            // Some file systems have a device number of their own, and name the device instead.
            let of = |(part, number): (&String, &Option<String>)| {
                number.as_deref() == Some(mount.number) || self.names_device(&mount.source, part)
            };
            let found = parts
                .iter()
                .zip(&numbers)
                .find(|&(part, number)| of((part, number)));
            if let Some((part, _)) = found {
                words.push(format!("{part} is mounted at {}", mount.at));
            }
        }
        words
    }

    fn swap(&self, parts: &[String]) -> Vec<String> {
        let text = fs::read_to_string(self.system.path("proc/swaps")).unwrap_or_default();
        let files = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next());
        let files: Vec<String> = files.map(unescaped).collect();
        let used = |part: &&String| files.iter().any(|file| self.names_device(file, part));
        let swap = parts.iter().filter(used);
        swap.map(|part| format!("{part} is swap space")).collect()
    }

    /// Whether `file`, a device node or a link to one, is the block device `part`.
    fn names_device(&self, file: &str, part: &str) -> bool {
        let Some(below) = file.strip_prefix("/dev/") else {
            return false;
        };
        let link = self.system.path("dev").join(below);
        let file = fs::canonicalize(&link).unwrap_or(link);
        file == self.device(part)
    }

    fn device(&self, part: &str) -> PathBuf {
        let path = self.system.path("dev").join(part);
        fs::canonicalize(&path).unwrap_or(path)
    }

    /// Volumes of the device mapper, RAID and others on a block device.
    fn volumes(&self, part: &str) -> Vec<String> {
        let made = names(&block(self.system, part).join("holders"));
        let described = made.into_iter().map(|name| {
            let folder = self.system.path("sys/class/block").join(&name);
            let (title, uuid) = (line(&folder.join("dm/name")), line(&folder.join("dm/uuid")));
            let kind = match uuid.as_deref().and_then(|uuid| uuid.split('-').next()) {
                Some("LVM") => "the LVM volume",
                Some("CRYPT") => "the encrypted volume",
                Some("mpath") => "the multipath device",
                _ if folder.join("md").is_dir() => "the RAID",
                _ => "the volume",
            };
            format!("{part} is part of {kind} {}", title.unwrap_or(name))
        });
        described.collect()
    }

    /// Processes that have a block device, a character device of a controller or namespace, or the
    /// IOMMU group open.
    fn processes(&self, parts: &[String]) -> Vec<String> {
        let mut devices: Vec<String> = parts.iter().map(|part| format!("/dev/{part}")).collect();
        devices.extend(self.controllers.iter().map(|name| format!("/dev/{name}")));
        let generic = self
            .block_devices
            .iter()
            .filter_map(|name| name.strip_prefix("nvme"));
        devices.extend(generic.map(|rest| format!("/dev/ng{rest}")));
        devices.extend(self.iommu_group.map(|group| format!("/dev/vfio/{group}")));
        let own = names(&self.folder.join("vfio-dev"));
        devices.extend(own.iter().map(|name| format!("/dev/vfio/devices/{name}")));

        let proc = self.system.path("proc");
        let mut words = Vec::new();
        for pid in names(&proc) {
            if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let folder = proc.join(&pid);
            let open = names(&folder.join("fd"));
            let open = open
                .iter()
                .filter_map(|fd| fs::read_link(folder.join("fd").join(fd)).ok());
            let open: Vec<_> = open.collect();
            for device in &devices {
                if open.iter().any(|file| file == Path::new(device)) {
                    let name = line(&folder.join("comm")).unwrap_or_else(|| "?".to_owned());
                    words.push(format!("{name} (process {pid}) has {device} open"));
                }
            }
        }
        words
    }
}

/// Prevents a drive's block devices from being mounted or added to volumes, until the result is
/// dropped.
///
/// # Errors
/// The name of a device that is in use.
pub(super) fn claim_all(system: &System, block_devices: &[String]) -> Result<Vec<File>, String> {
    let mut claims = Vec::new();
    for name in block_devices {
        claims.extend(claim(system, name).map_err(|InUse| name.clone())?);
    }
    Ok(claims)
}

/// The block device is open exclusively elsewhere.
struct InUse;

/// Opens a block device exclusively; `None` if it cannot be opened for another reason.
fn claim(system: &System, name: &str) -> Result<Option<File>, InUse> {
    let flags = OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    match options.open(system.path("dev").join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Err(InUse),
        Err(_) => Ok(None),
    }
}

fn block(system: &System, name: &str) -> PathBuf {
    system.path("sys/class/block").join(name)
}

/// Block devices, each followed by its partitions.
fn parts(system: &System, block_devices: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for name in block_devices {
        all.push(name.clone());
        let folder = block(system, name);
        let is_partition = |part: &String| folder.join(part).join("partition").exists();
        all.extend(names(&folder).into_iter().filter(is_partition));
    }
    all
}

/// A line of mountinfo (proc_pid_mountinfo(5)).
struct Mount<'a> {
    /// Major and minor number of the device.
    number: &'a str,
    at: String,
    source: String,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        let (number, _root, at) = (fields.next()?, fields.next()?, fields.next()?);
        let source = after.split(' ').nth(1)?;
        Some(Mount {
            number,
            at: unescaped(at),
            source: unescaped(source),
        })
    }
}

/// Decodes a name in a table of proc: blanks and backslashes are `\` and three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
