//! The versions of QEMU that run guests, and their options for disks of vhost-user-blk.

use std::path::{Path, PathBuf};

use crate::debian::Program;

/// The version of [`Qemu::Older`].
pub(crate) const OLDER_VERSION: (u32, u32) = (7, 2);

/// A QEMU that runs guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Qemu {
    /// The system's where it has the device `vfio-user-pci`, else that of Debian's backports.
    #[default]
    Current,
    /// That of the Debian release before the guests': 7.2. It has no device for vfio-user.
    Older,
}

/// A disk of a vhost-user-blk back end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The back end's socket. QEMU connects again when the back end has closed the connection.
    pub socket: PathBuf,
    /// Queues of the device: 1 to as many as the back end offers.
    pub queues: u32,
    /// Whether its rings are packed, if the back end can serve them; else split.
    pub packed: bool,
}

impl Disk {
    /// The options of QEMU for the device `index` in the PCI slot `slot`, from which the guest
    /// starts with `boots`.
    pub(crate) fn arguments(
        &self,
        qemu: Qemu,
        index: usize,
        slot: usize,
        boots: bool,
    ) -> [String; 4] {
        // QEMU counts milliseconds from version 9.2 on.
        let reconnect = match qemu {
            Qemu::Current => "reconnect-ms=100",
            Qemu::Older => "reconnect=1",
        };
        let path = comma_doubled(&self.socket);
        let (queues, packed) = (self.queues, if self.packed { "on" } else { "off" });
        let order = if boots { ",bootindex=1" } else { "" };
        [
            "-chardev".to_owned(),
            format!("socket,id=disk{index},path={path},{reconnect}"),
            "-device".to_owned(),
            format!(
                "vhost-user-blk-pci,chardev=disk{index},num-queues={queues},packed={packed},addr=0x{slot:x}{order}"
            ),
        ]
    }
}

/// A path in an option of QEMU.
fn comma_doubled(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A program of a QEMU that was unpacked in `root`.
pub(crate) fn private(root: &Path, name: &str) -> Program {
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

/// Version that a QEMU reports: major and minor.
pub(crate) fn version(program: &Program) -> Option<(u32, u32)> {
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

    #[test]
    fn a_comma_of_a_path_ends_no_option() {
        let disk = Disk {
            socket: PathBuf::from("/tmp/a,b"),
            queues: 2,
            packed: true,
        };
        let [_, chardev, ..] = disk.arguments(Qemu::Older, 3, 0x13, false);
        assert_eq!(chardev, "socket,id=disk3,path=/tmp/a,,b,reconnect=1");
    }
}
