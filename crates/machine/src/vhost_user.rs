//! Ways to a vhost-user-blk disk, as the monitors of guests write them: QEMU, libvirt, Firecracker
//! and cloud-hypervisor. Options are those of their documentation.

use serde::Serialize;

use crate::qemu::{self, Version, in_one_line, in_option, shell_quoted};

/// The first QEMU whose sockets have the option `reconnect-ms`, before which it is `reconnect`.
const RECONNECT_MS: Version = Version { major: 9, minor: 2 };
/// Virtio's number of a block device, bytes of its configuration space with zones, and entries of
/// its rings, for a device that knows none of them.
const BLOCK_DEVICE: u16 = 2;
const CONFIG_LEN: u16 = 96;
const RING_ENTRIES: u16 = 256;
/// Rings that a monitor is to use, where the device has that many.
const USUAL_RINGS: u16 = 4;

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk<'a> {
    /// Name of its controller.
    pub name: &'a str,
    /// Path of its socket.
    pub socket: &'a str,
    /// Rings of the device, at least 1.
    pub rings: u16,
    /// It has zones: of the monitors, only QEMU has a device that passes them on.
    pub is_zoned: bool,
}

/// Monitor of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// QEMU's command line.
    Qemu,
    /// libvirt's domain.
    Libvirt,
    /// Firecracker's configuration.
    Firecracker,
    /// cloud-hypervisor's command line.
    CloudHypervisor,
}

impl Monitor {
    /// Name of the monitor on our command line, and in text.
    pub const ALL: [(&str, Monitor); 4] = [
        ("qemu", Monitor::Qemu),
        ("libvirt", Monitor::Libvirt),
        ("firecracker", Monitor::Firecracker),
        ("cloud-hypervisor", Monitor::CloudHypervisor),
    ];
}

/// Drive in the configuration of Firecracker.
#[derive(Debug, Serialize)]
struct Drive<'a> {
    drive_id: String,
    is_root_device: bool,
    socket: &'a str,
    /// Without it the guest's flushes are not passed on.
    cache_type: &'static str,
}

impl Disk<'_> {
    /// Rings that a monitor is to use. More than the device has are refused.
    fn used(&self) -> u16 {
        self.rings.min(USUAL_RINGS)
    }

    /// The options of QEMU for a guest with this disk, and memory that the server can map.
    /// `version` is the one of the QEMU in use, where known.
    pub fn qemu_options(&self, memory_bytes: u64, version: Option<Version>) -> Vec<[String; 2]> {
        let id = format!("nvmirage-{}", self.name);
        let reconnect = match version {
            Some(version) if version < RECONNECT_MS => "reconnect=1",
            _ => "reconnect-ms=1000",
        };
        let path = in_option(self.socket);
        let mut options = qemu::shared_memory(memory_bytes);
        if self.is_zoned {
            // Its device for virtio disks hides zones. The one for any device does not connect
            // again.
            options.push(["-chardev".to_owned(), format!("socket,id={id},path={path}")]);
            options.push([
                "-device".to_owned(),
                format!(
                    "vhost-user-test-device-pci,chardev={id},virtio-id={BLOCK_DEVICE},num_vqs={},vq_size={RING_ENTRIES},config_size={CONFIG_LEN}",
                    self.used()
                ),
            ]);
            return options;
        }
        options.push([
            "-chardev".to_owned(),
            format!("socket,id={id},path={path},{reconnect}"),
        ]);
        options.push([
            "-device".to_owned(),
            format!("vhost-user-blk-pci,chardev={id},num-queues={}", self.used()),
        ]);
        options
    }

    /// The elements of libvirt's domain: of the domain itself, and of its `devices`.
    pub fn libvirt(&self) -> [String; 2] {
        let memory = "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>";
        let disk = format!(
            "<disk type='vhostuser' device='disk'><driver name='qemu' type='raw' queues='{}'/><source type='unix' path='{}'><reconnect enabled='yes' timeout='1'/></source><target dev='vdb' bus='virtio'/></disk>",
            self.used(),
            in_xml(self.socket)
        );
        [memory.to_owned(), disk]
    }

    /// A part of Firecracker's configuration. Firecracker shares the memory of a guest that has
    /// such a drive.
    pub fn firecracker(&self) -> String {
        // the identifiers of Firecracker have no other characters
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let drive = Drive {
            drive_id: self.name.chars().map(plain).collect(),
            is_root_device: false,
            socket: self.socket,
            cache_type: "Writeback",
        };
        let drive = serde_json::to_string(&drive).expect("strings have a JSON form");
        format!("\"drives\": [{drive}]")
    }

    /// The options of cloud-hypervisor.
    pub fn cloud_hypervisor(&self, memory_bytes: u64) -> Vec<[String; 2]> {
        let mib = memory_bytes >> 20;
        vec![
            ["--memory".to_owned(), format!("size={mib}M,shared=on")],
            [
                "--disk".to_owned(),
                format!(
                    "vhost_user=true,socket={},num_queues={}",
                    self.socket,
                    self.used()
                ),
            ],
        ]
    }

    /// Options for a monitor, on several lines.
    pub fn text(&self, monitor: Monitor, memory_bytes: u64, version: Option<Version>) -> String {
        let lines = match monitor {
            Monitor::Qemu => {
                let options = self.qemu_options(memory_bytes, version);
                let lines = options
                    .iter()
                    .map(|[option, value]| format!("{option} {}", shell_quoted(value)));
                lines.collect::<Vec<_>>().join(" \\\n")
            }
            Monitor::Libvirt => self.libvirt().join("\n"),
            Monitor::Firecracker => self.firecracker(),
            Monitor::CloudHypervisor => in_one_line(&self.cloud_hypervisor(memory_bytes)),
        };
        format!("{lines}\n")
    }
}

/// Text in an attribute of XML.
fn in_xml(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(socket: &str) -> Disk<'_> {
        Disk {
            name: "vm-1",
            socket,
            rings: 64,
            is_zoned: false,
        }
    }

    fn of(major: u32, minor: u32) -> Option<Version> {
        Some(Version { major, minor })
    }

    #[test]
    fn qemu_shares_its_memory_and_connects_again() {
        let options = disk("/run/a,b.sock").qemu_options(4 << 30, of(9, 2));
        let expected = [
            ["-m", "4096M"],
            ["-object", "memory-backend-memfd,id=mem,size=4096M,share=on"],
            ["-machine", "q35,memory-backend=mem"],
            [
                "-chardev",
                "socket,id=nvmirage-vm-1,path=/run/a,,b.sock,reconnect-ms=1000",
            ],
            [
                "-device",
                "vhost-user-blk-pci,chardev=nvmirage-vm-1,num-queues=4",
            ],
        ];
        assert_eq!(options, expected);
        // the option that QEMU 9.2 has deprecated
        for (version, option) in [
            (of(9, 1), "reconnect=1"),
            (of(7, 2), "reconnect=1"),
            (of(10, 0), "reconnect-ms=1000"),
            (None, "reconnect-ms=1000"),
        ] {
            let chardev = disk("/x").qemu_options(1 << 30, version)[3][1].clone();
            assert!(chardev.ends_with(&format!(",{option}")), "{chardev}");
        }
    }

    #[test]
    fn a_disk_with_zones_is_a_device_of_any_kind() {
        let zoned = Disk {
            is_zoned: true,
            ..disk("/run/a,b.sock")
        };
        let options = zoned.qemu_options(4 << 30, of(11, 1));
        // VIRTIO 1.3: a block device is 2 (5.2.1), and its configuration space has 96 bytes
        // (5.2.4).
        let expected = [
            ["-chardev", "socket,id=nvmirage-vm-1,path=/run/a,,b.sock"],
            [
                "-device",
                "vhost-user-test-device-pci,chardev=nvmirage-vm-1,virtio-id=2,num_vqs=4,vq_size=256,config_size=96",
            ],
        ];
        assert_eq!(options[3..], expected);
    }

    #[test]
    fn no_more_rings_are_used_than_there_are() {
        let few = Disk {
            rings: 2,
            ..disk("/x")
        };
        assert!(few.qemu_options(1 << 30, None)[4][1].ends_with("num-queues=2"));
        assert!(few.libvirt()[1].contains(" queues='2'/>"));
        assert!(few.cloud_hypervisor(1 << 30)[1][1].ends_with("num_queues=2"));
    }

    #[test]
    fn libvirt_has_a_disk_and_shared_memory() {
        let [memory, disk] = disk("/run/<a>&'b'.sock").libvirt();
        assert!(memory.contains("<source type='memfd'/><access mode='shared'/>"));
        let expected = "<disk type='vhostuser' device='disk'><driver name='qemu' type='raw' queues='4'/><source type='unix' path='/run/&lt;a&gt;&amp;&apos;b&apos;.sock'><reconnect enabled='yes' timeout='1'/></source><target dev='vdb' bus='virtio'/></disk>";
        assert_eq!(disk, expected);
    }

    #[test]
    fn firecracker_and_cloud_hypervisor_name_the_socket() {
        let drives = format!("{{{}}}", disk("/run/\"b\".sock").firecracker());
        let drives: serde_json::Value = serde_json::from_str(&drives).unwrap();
        let expected = serde_json::json!({"drives": [{
            "drive_id": "vm_1",
            "is_root_device": false,
            "socket": "/run/\"b\".sock",
            "cache_type": "Writeback",
        }]});
        assert_eq!(drives, expected);
        let text = disk("/b.sock").text(Monitor::CloudHypervisor, 4 << 30, None);
        let expected =
            "--memory size=4096M,shared=on --disk vhost_user=true,socket=/b.sock,num_queues=4\n";
        assert_eq!(text, expected);
    }
}
