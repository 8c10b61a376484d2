//! The identity of a drive, as text and as JSON.

use std::fmt::Write as _;

use load::Host;
use load::host::doorbells_name;
use nvme_spec::identify::namespace::DeallocatedReads;
use nvme_spec::identify::{IdentifyController, IdentifyNamespace, ascii_text};
use nvme_spec::key_value::IdentifyKvNamespace;
use nvme_spec::opcode::Csi;
use serde::Serialize;
use terminal::units;

/// A controller and its active namespaces.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Identity {
    pub(crate) controller: ControllerIdentity,
    pub(crate) namespaces: Vec<NamespaceIdentity>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ControllerIdentity {
    pub(crate) model_number: String,
    pub(crate) serial_number: String,
    pub(crate) firmware_revision: String,
    pub(crate) vendor_id: u16,
    /// NVMe version, as in `2.1`.
    pub(crate) version: String,
    pub(crate) subnqn: String,
    pub(crate) controller_id: u16,
    /// Maximum size of a command in bytes; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_transfer: Option<u64>,
    pub(crate) io_queue_pairs: u16,
    /// Maximum number of commands in a queue.
    pub(crate) queue_depth: u16,
    /// How this host would ring its doorbells.
    pub(crate) doorbells: &'static str,
    pub(crate) volatile_write_cache: bool,
    /// Optional commands, by name.
    pub(crate) commands: Vec<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NamespaceIdentity {
    pub(crate) nsid: u32,
    /// `nvm`, `zoned` or `key-value`.
    pub(crate) command_set: &'static str,
    pub(crate) bytes: u64,
    /// 0 for keys and values.
    pub(crate) blocks: u64,
    /// 0 for keys and values.
    pub(crate) block_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zones: Option<ZonesIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairsIdentity>,
    /// In hexadecimal; absent if the drive has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nguid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eui64: Option<String>,
    /// Whether deallocated blocks read as zeros.
    pub(crate) deallocated_reads_zeros: bool,
}

/// Common properties of a namespace's zones.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ZonesIdentity {
    pub(crate) count: u64,
    /// Bytes from the start of a zone to the start of the next one.
    pub(crate) size: u64,
    /// Most open zones; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_open: Option<u64>,
    /// Most open and closed zones; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_active: Option<u64>,
}

/// Limits of keys and values.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PairsIdentity {
    /// Bytes in use.
    pub(crate) used: u64,
    pub(crate) max_key: u16,
    pub(crate) max_value: u32,
    /// 0 for no limit.
    pub(crate) max_keys: u32,
}

impl Identity {
    /// Reads the identity of a drive.
    pub(crate) fn ask(host: &mut Host) -> anyhow::Result<Self> {
        let device = host.device();
        let structure = device.identify_controller()?;
        let controller = ControllerIdentity::new(
            &structure,
            device.queues_max(),
            device.depth_max(),
            device.doorbells().map_or("none", doorbells_name),
        );
        let mut namespaces = Vec::new();
        for nsid in host.device().active_namespaces()? {
            namespaces.push(NamespaceIdentity::ask(host, nsid)?);
        }
        Ok(Identity {
            controller,
            namespaces,
        })
    }

    pub(crate) fn in_words(&self) -> String {
        let c = &self.controller;
        let transfer = c.max_transfer.map_or("no limit".to_owned(), units::bytes);
        let cache = if c.volatile_write_cache {
            "volatile: a flush makes data durable"
        } else {
            "none that is volatile"
        };
        let lines = [
            ("model", c.model_number.clone()),
            ("serial", c.serial_number.clone()),
            ("firmware", c.firmware_revision.clone()),
            ("vendor", format!("{:04x}", c.vendor_id)),
            ("NVMe", c.version.clone()),
            ("subsystem", c.subnqn.clone()),
            ("controller", c.controller_id.to_string()),
            (
                "I/O queues",
                format!(
                    "{} pairs, {} commands in each",
                    c.io_queue_pairs, c.queue_depth
                ),
            ),
            ("doorbells", c.doorbells.to_owned()),
            ("transfer", transfer),
            ("write cache", cache.to_owned()),
            ("commands", c.commands.join(", ")),
        ];
        let mut text = String::new();
        for (name, value) in lines {
            let _ = writeln!(text, "{name:<12} {value}");
        }
        if self.namespaces.is_empty() {
            text.push_str("no namespaces\n");
        }
        for namespace in &self.namespaces {
            text.push_str(&namespace.in_words());
        }
        text
    }
}

impl ControllerIdentity {
    fn new(
        structure: &IdentifyController,
        io_queue_pairs: u16,
        queue_depth: u16,
        doorbells: &'static str,
    ) -> Self {
        let (oacs, oncs) = (structure.oacs, structure.oncs);
        let commands = [
            (oncs.nvmcmps(), "Compare"),
            (oncs.nvmwusv(), "Write Uncorrectable"),
            (oncs.nvmdsmsv(), "Dataset Management"),
            (oncs.nvmwzsv(), "Write Zeroes"),
            (oncs.reservs(), "Reservations"),
            (oncs.nvmvfys(), "Verify"),
            (oncs.nvmcpys(), "Copy"),
            (oacs.fnvms(), "Format NVM"),
            (oacs.fwds(), "Firmware"),
            (oacs.nms(), "Namespace Management"),
            (oacs.dsts(), "Device Self-test"),
            (oacs.dbcs(), "Doorbell Buffer Config"),
        ];
        ControllerIdentity {
            model_number: ascii_text(&structure.mn).to_owned(),
            serial_number: ascii_text(&structure.sn).to_owned(),
            firmware_revision: ascii_text(&structure.fr).to_owned(),
            vendor_id: structure.vid,
            version: version(structure),
            subnqn: nul_terminated(&structure.subnqn),
            controller_id: structure.cntlid,
            // in memory pages of 4 KiB: the driver rejects drives with a larger minimum (Base 2.1,
            // 5.1.13.2.1)
            max_transfer: match structure.mdts {
                0 => None,
                mdts => 4096u64.checked_shl(mdts.into()),
            },
            io_queue_pairs,
            queue_depth,
            doorbells,
            volatile_write_cache: structure.vwc.vwcp(),
            commands: commands
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, name)| *name)
                .collect(),
        }
    }
}

/// `2.1`, or `1.4.1`.
fn version(structure: &IdentifyController) -> String {
    let version = structure.ver;
    match version.ter() {
        0 => format!("{}.{}", version.mjr(), version.mnr()),
        third => format!("{}.{}.{third}", version.mjr(), version.mnr()),
    }
}

/// Text up to the first NUL, without invalid UTF-8 and control characters.
fn nul_terminated(field: &[u8]) -> String {
    let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..len])
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Hexadecimal digits; `None` for all zeros, which means "none".
fn hex(bytes: &[u8]) -> Option<String> {
    let any = bytes.iter().any(|&b| b != 0);
    any.then(|| bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl NamespaceIdentity {
    fn ask(host: &mut Host, nsid: u32) -> anyhow::Result<Self> {
        let csi = host.command_set(nsid)?;
        let device = host.device();
        if csi == Csi::KEY_VALUE {
            let structure = device.identify_command_set::<IdentifyKvNamespace>(csi, nsid)?;
            return Ok(NamespaceIdentity::of_pairs(nsid, &structure));
        }
        let structure = device.identify_namespace(nsid)?;
        let mut identity = NamespaceIdentity::new(nsid, &structure);
        if csi == Csi::ZONED_NAMESPACE {
            let zones = device.zones(nsid)?;
            identity.command_set = "zoned";
            identity.zones = Some(ZonesIdentity {
                count: identity.blocks / zones.blocks,
                size: zones.blocks.saturating_mul(identity.block_size.into()),
                max_open: zones.max_open,
                max_active: zones.max_active,
            });
        }
        Ok(identity)
    }

    fn of_pairs(nsid: u32, structure: &IdentifyKvNamespace) -> Self {
        let format = structure.kvf[0];
        NamespaceIdentity {
            nsid,
            command_set: "key-value",
            bytes: structure.nsze,
            blocks: 0,
            block_size: 0,
            zones: None,
            pairs: Some(PairsIdentity {
                used: structure.nuse,
                max_key: format.kvkml,
                max_value: format.kvvml,
                max_keys: format.kvmnk,
            }),
            nguid: hex(&structure.nguid),
            eui64: hex(&structure.eui64),
            deallocated_reads_zeros: false,
        }
    }

    fn new(nsid: u32, structure: &IdentifyNamespace) -> Self {
        let format = structure
            .lbaf
            .get(usize::from(structure.flbas.format_index()));
        let shift = format.map_or(0, |f| u32::from(f.lbads()));
        let block_size = 1u32.checked_shl(shift).unwrap_or(0);
        NamespaceIdentity {
            nsid,
            command_set: "nvm",
            bytes: structure.nsze.saturating_mul(block_size.into()),
            blocks: structure.nsze,
            block_size,
            zones: None,
            pairs: None,
            nguid: hex(&structure.nguid),
            eui64: hex(&structure.eui64),
            deallocated_reads_zeros: structure.dlfeat.drb() == DeallocatedReads::ZEROES,
        }
    }

    fn in_words(&self) -> String {
        let size = units::bytes(self.bytes);
        let mut text = match &self.pairs {
            Some(pairs) => format!(
                "namespace {:<2} {size} of keys and values, {} used\n",
                self.nsid,
                units::bytes(pairs.used)
            ),
            None => format!(
                "namespace {:<2} {size}, {} blocks of {} B\n",
                self.nsid, self.blocks, self.block_size
            ),
        };
        if let Some(zones) = &self.zones {
            let limit =
                |limit: Option<u64>| limit.map_or("any number".to_owned(), |n| n.to_string());
            let _ = writeln!(
                text,
                "{:>12} {} of {}, {} open and {} active at a time",
                "zones",
                zones.count,
                units::bytes(zones.size),
                limit(zones.max_open),
                limit(zones.max_active)
            );
        }
        if let Some(pairs) = &self.pairs {
            let keys = match pairs.max_keys {
                0 => "any number of keys".to_owned(),
                most => format!("{most} keys"),
            };
            let _ = writeln!(
                text,
                "{:>12} up to {keys} of {} B, values of {}",
                "limits",
                pairs.max_key,
                units::bytes(pairs.max_value.into())
            );
        }
        for (name, value) in [("NGUID", &self.nguid), ("EUI-64", &self.eui64)] {
            if let Some(value) = value {
                let _ = writeln!(text, "{name:>12} {value}");
            }
        }
        if self.deallocated_reads_zeros {
            let _ = writeln!(text, "{:>12} reads as zeros", "deallocated");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use nvme_spec::identify::ascii_field;
    use nvme_spec::identify::controller::Oncs;
    use nvme_spec::identify::namespace::{Flbas, LbaFormat};
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_controller_in_words() {
        let mut structure = IdentifyController::new_zeroed();
        structure.mn = ascii_field("a model");
        structure.mdts = 8;
        structure.oncs = Oncs::new().with_nvmcmps(true).with_nvmwzsv(true);
        structure.subnqn[..5].copy_from_slice(b"nqn.\x1b");
        let controller = ControllerIdentity::new(&structure, 4, 63, "mapped");
        assert_eq!(controller.max_transfer, Some(1 << 20));
        assert_eq!(controller.commands, ["Compare", "Write Zeroes"]);
        assert_eq!(controller.subnqn, "nqn.?");
        let identity = Identity {
            controller,
            namespaces: Vec::new(),
        };
        let text = identity.in_words();
        assert!(text.contains("model        a model\n"), "{text}");
        assert!(text.contains("4 pairs, 63 commands in each"), "{text}");
        assert!(text.contains("no namespaces"), "{text}");
    }

    #[test]
    fn a_namespace_in_words() {
        let mut structure = IdentifyNamespace::new_zeroed();
        structure.nsze = 1 << 18;
        structure.flbas = Flbas::new().with_fidxl(1);
        structure.lbaf[1] = LbaFormat::new().with_lbads(12);
        structure.nguid[15] = 0xab;
        let namespace = NamespaceIdentity::new(3, &structure);
        assert_eq!((namespace.bytes, namespace.block_size), (1 << 30, 4096));
        assert_eq!(
            namespace.nguid.as_deref(),
            Some("000000000000000000000000000000ab")
        );
        assert_eq!(namespace.eui64, None);
        assert!(
            namespace
                .in_words()
                .starts_with("namespace 3  1.00 GiB, 262144 blocks of 4096 B\n")
        );
    }
}
