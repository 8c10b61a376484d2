//! `[[controller]]`: a controller that hosts attach to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Bounds, Names, object};
use super::{Ana, HostAddress, Listen, MAX_QUEUE_DEPTH, MAX_QUEUES, Nbd, Size, SocketMode, Tcp};

/// Longest NQN (Base 2.1, 4.7).
const MAX_NQN_LEN: usize = 223;
/// Default of identities: they stay when the configuration is written again.
pub(super) const DERIVED: &str = "derived once and persistent";
/// Often enough for statistics of one second on a slow drive, and rarely enough to cost the fastest
/// one less than 2 % of its instructions.
const DEFAULT_SAMPLE: u32 = 256;
const NO_DEVICE: &str = "0 and 0xffff mean that no device is present";

/// Doorbell delivery to the reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Doorbells {
    /// Mapped where every reactor of the controller is in `poll` mode, else unmapped.
    #[default]
    Auto,
    /// Map the doorbell page into the host. Doorbell writes cause no VM exit, and do not wake a
    /// sleeping reactor.
    Mapped,
    /// Deliver each write as a message, or through shadow doorbells where the host uses Doorbell
    /// Buffer Config.
    Unmapped,
    /// Deliver each write as a message; Doorbell Buffer Config is unsupported. For measuring.
    Trapped,
}

object! {
    /// Mount options of a controller's namespaces.
    #[derive(Copy, Default, Eq)]
    pub struct Fuse(FuseKeys, "fuse") {
        /// Let other users of the machine open the files of a mount.
        allow_other: bool = false => Fixed;
        /// Use the machine's page cache for reads and writes of a mount, which hides the drive's
        /// latency.
        page_cache: bool = false => Fixed;
    }
}

object! {
    /// NVMe controller.
    pub struct Controller(ControllerKeys, "controller") {
        /// Name of the controller.
        name: String => Fixed { bounds: Bounds::Name };
        /// Name of the controller's NVM subsystem; controllers with the same value share it.
        subsystem: Option<String> | unset => Fixed {
            bounds: Bounds::Name,
            unset: "a subsystem of its own, named after the controller",
        };
        /// Names of the namespaces attached to the controller. Their identifiers in the subsystem
        /// count from 1 in the order of first mention.
        namespaces: Vec<String> = Vec::new() => Step { names: Names::Namespaces };
        /// Names of media in whose unallocated space hosts may create namespaces; the pool belongs
        /// to the whole subsystem.
        pool: Vec<String> | unset => Fixed { value: "MEDIA", names: Names::Media };
        /// Address that hosts attach to: `vfio-user:PATH`, `fuse:FOLDER` for a mount on this
        /// machine, `nvme-tcp:ADDRESS:PORT` for hosts over NVMe/TCP, `nbd:PATH` or
        /// `nbd:ADDRESS:PORT` for NBD clients, on a UNIX socket or over TCP,
        /// `vhost-user-blk:PATH` for a virtio disk of a guest, or `ublk:` or `ublk:ID` for a block
        /// device of this machine, `/dev/ublkbID`.
        listen: Listen => Fixed {
            value: "vfio-user:PATH|fuse:FOLDER|nvme-tcp:ADDRESS:PORT|nbd:PATH|nbd:ADDRESS:PORT|vhost-user-blk:PATH|ublk:|ublk:ID",
        };
        /// Mode of the socket, as in chmod(1): `0600` for its owner, `0660` for its group too,
        /// `0666` for all users.
        socket_mode: SocketMode | unset => Fixed { value: "MODE" };
        /// Mount options. Only for `listen = "fuse:FOLDER"`.
        fuse: Option<Fuse> | unset => Fixed { table: Fuse::KEYS };
        /// NVMe/TCP options. Only for `listen = "nvme-tcp:ADDRESS:PORT"`.
        tcp: Option<Tcp> | unset => Fixed { table: Tcp::KEYS };
        /// NBD options. Only for `listen = "nbd:…"`.
        nbd: Option<Nbd> | unset => Fixed { table: Nbd::KEYS };
        /// State of each ANA group for hosts of the controller: `optimized`, `non-optimized`,
        /// `inaccessible`, `persistent-loss` or `change`. Only for
        /// `listen = "nvme-tcp:ADDRESS:PORT"`.
        #[schema(value_type = std::collections::BTreeMap<String, super::AnaState>)]
        ana: Ana | unset => Live {
            unset: "every group is `optimized`",
            value: "GROUP=STATE",
            parts: "GROUP",
        };
        /// Address at which hosts reach the controller, in discovery log pages, where it is not the
        /// one in `listen`: behind NAT or a tunnel. Only for `listen = "nvme-tcp:ADDRESS:PORT"`.
        advertise: Option<HostAddress> | unset => Live {
            unset: "the address in `listen`, or for all addresses the one that a host connected to",
            value: "ADDRESS[:PORT]",
        };
        /// Addresses of discovery services of other machines, which the controller's discovery log
        /// page names, up to 16. The port is 8009 where none is written. Only for
        /// `listen = "nvme-tcp:ADDRESS:PORT"`.
        referrals: Vec<HostAddress> | unset => Live { value: "ADDRESS[:PORT]" };
        /// Maximum number of I/O queue pairs; with vhost-user-blk, of the device's rings; with
        /// ublk, of the block device's hardware queues.
        queues: u16 = MAX_QUEUES => Fixed {
            bounds: Bounds::Whole(1, MAX_QUEUES as u64),
            value: "N",
        };
        /// Maximum number of entries of an I/O queue.
        queue_depth: u16 = 1024 => Fixed {
            bounds: Bounds::Whole(2, MAX_QUEUE_DEPTH as u64),
            value: "N",
        };
        /// Maximum data transfer size of one command (MDTS).
        max_transfer: Size = Size(1 << 20) => Fixed {
            bounds: Bounds::PowerOfTwo(8 << 10, 4 << 20),
            value: "SIZE",
        };
        /// Delivery of doorbell writes to the reactor: `mapped` into the host, `unmapped` as a
        /// message or through shadow doorbells, `trapped` always as a message; `auto` is `mapped`
        /// where every reactor of the controller is in `poll` mode, else `unmapped`.
        doorbells: Doorbells = Doorbells::default() => Fixed;
        /// Offer MSI-X. With `false` the controller offers only MSI, with up to 32 messages, for
        /// monitors that abort when a device with MSI-X is unplugged.
        msix: bool = true => Fixed;
        /// Provide an interrupt pin (INTx), for guests without MSI-X.
        intx: bool = false => Fixed;
        /// Let a host move the controller to another server that has the same file, and from there
        /// to here. A server that starts while the other one has the file waits for the state.
        migration: bool = false => Fixed;
        /// Number of the `[[reactor]]` that serves the controller, from 0.
        reactor: Option<usize> | unset => Fixed {
            unset: "the reactor with the fewest controllers",
            value: "N",
            names: Names::Reactors,
        };
        /// Numbers of the reactors that serve the I/O queues. The first completion queue, with the
        /// submission queues that complete into it, is on the first reactor, and so on in turn.
        reactors: Vec<usize> | unset => Step {
            unset: "all queues are on the controller's reactor",
            value: "N",
            names: Names::Reactors,
        };
        /// Tenant that the commands of its hosts count for, except on namespaces with a tenant of
        /// their own.
        tenant: Option<String> | unset => Live { names: Names::Tenants };
        /// Latency sampling rate: on average one in N I/O commands is timed.
        sample: u32 = DEFAULT_SAMPLE => Live {
            bounds: Bounds::Whole(1, 65_536),
            off: "sampling",
            value: "N",
        };
        /// Number of timed commands that each completion queue keeps. `nvmirage latency` shows the
        /// last ones of all queues, up to this number. A change discards those kept so far.
        records: u16 = 256 => Live { bounds: Bounds::Whole(16, 4096), value: "N" };
        /// Serial number.
        serial: Option<String> | unset => Fixed { bounds: Bounds::Ascii(20), unset: DERIVED };
        /// Model number.
        model_number: String = "nvmirage".to_owned() => Fixed {
            bounds: Bounds::Ascii(40),
            value: "TEXT",
        };
        /// Firmware revision.
        firmware_revision: String = env!("CARGO_PKG_VERSION").to_owned() => Fixed {
            bounds: Bounds::Ascii(8),
            unset: "the program's version",
            value: "TEXT",
        };
        /// NVM subsystem NQN: `nqn.YYYY-MM.reverse.domain:name`.
        subnqn: Option<String> | unset => Fixed {
            bounds: Bounds::Ascii(MAX_NQN_LEN),
            unset: DERIVED,
            value: "NQN",
        };
        /// PCI vendor ID.
        vendor_id: Option<u16> | unset => Fixed {
            bounds: Bounds::Hex(1, 0xfffe),
            hint: NO_DEVICE,
            unset: "0x4e56",
            value: "ID",
        };
        /// PCI device ID.
        device_id: Option<u16> | unset => Fixed {
            bounds: Bounds::Hex(1, 0xfffe),
            hint: NO_DEVICE,
            unset: "0x0001",
            value: "ID",
        };
    }
}

impl Controller {
    /// A controller without namespaces, everything else at its default.
    pub fn new(name: String, listen: Listen) -> Self {
        let written = ControllerKeys {
            name: Some(name),
            listen: Some(listen),
            ..ControllerKeys::default()
        };
        written.complete().expect("no other key is required")
    }

    /// The name of its subsystem.
    pub fn subsystem(&self) -> &str {
        self.subsystem.as_deref().unwrap_or(&self.name)
    }
}
