//! `[[controller]]`: a controller that hosts attach to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::{Listen, MAX_QUEUES, Size, SocketMode};

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
        /// Let other users of the machine open the files. Default: false.
        allow_other: bool = false => Fixed;
        /// Use the machine's page cache for reads and writes, which hides the drive's latency.
        /// Default: false.
        page_cache: bool = false => Fixed;
    }
}

object! {
    /// NVMe controller.
    pub struct Controller(ControllerKeys, "controller") {
        /// Name of the controller: 1 to 64 letters, digits, `.`, `_` or `-`.
        name: String => Fixed;
        /// NVM subsystem of the controller, shared by all controllers that name it. Default: a
        /// subsystem of its own, named after the controller.
        subsystem: Option<String> | unset => Fixed;
        /// Names of the namespaces attached to the controller. Their identifiers in the subsystem
        /// count from 1 in the order of first mention. Default: none.
        namespaces: Vec<String> = Vec::new() => Step;
        /// Names of media in whose unallocated space hosts may create namespaces; the pool belongs
        /// to the whole subsystem. Default: none.
        pool: Vec<String> | unset => Fixed;
        /// Address that hosts attach to: `vfio-user:PATH`, or `fuse:FOLDER` for a mount on this
        /// machine.
        listen: Listen => Fixed;
        /// Mode of the socket, as in chmod(1): `0600` for its owner, `0660` for its group too,
        /// `0666` for all users. Default: `0600`.
        socket_mode: SocketMode | unset => Fixed;
        /// Mount options. Only for `listen = "fuse:FOLDER"`.
        fuse: Option<Fuse> | unset => Fixed;
        /// Maximum number of I/O queue pairs: 1 to 64. Default: 64.
        queues: u16 = MAX_QUEUES => Fixed;
        /// Maximum number of entries of an I/O queue: 2 to 4096. Default: 1024.
        queue_depth: u16 = 1024 => Fixed;
        /// Maximum data transfer size of one command (MDTS): a power of two, 8KiB to 4MiB. Default:
        /// 1MiB.
        max_transfer: Size = Size(1 << 20) => Fixed;
        /// Doorbell delivery to the reactor: `auto`, `mapped`, `unmapped` or `trapped`. Default:
        /// `auto`.
        doorbells: Doorbells = Doorbells::default() => Fixed;
        /// Offer MSI-X. With `false` the controller offers only MSI, with up to 32 messages, for
        /// monitors that abort when a device with MSI-X is unplugged. Default: true.
        msix: bool = true => Fixed;
        /// Provide an interrupt pin (INTx), for guests without MSI-X. Default: false.
        intx: bool = false => Fixed;
        /// Number of the `[[reactor]]` that serves the controller, from 0. Default: the reactor
        /// with the fewest controllers.
        reactor: Option<usize> | unset => Fixed;
        /// Numbers of the reactors that serve the I/O queues. The first completion queue, with the
        /// submission queues that complete into it, is on the first reactor, and so on in turn.
        /// Default: all queues are on the controller's reactor.
        reactors: Vec<usize> | unset => Step;
        /// Tenant that the commands of its hosts count for, except on namespaces with a tenant of
        /// their own. Default: none.
        tenant: Option<String> | unset => Live;
        /// Latency sampling rate: on average one in N I/O commands is timed. 1 to 65536; 0 disables
        /// sampling. Default: 256.
        sample: u32 = 256 => Live;
        /// Serial number: 1 to 20 ASCII characters. Default: derived once and persistent.
        serial: Option<String> | unset => Fixed;
        /// Model number: 1 to 40 ASCII characters. Default: `nvmirage`.
        model_number: String = "nvmirage".to_owned() => Fixed;
        /// Firmware revision: 1 to 8 ASCII characters. Default: the program's version.
        firmware_revision: String = env!("CARGO_PKG_VERSION").to_owned() => Fixed;
        /// NVM subsystem NQN, up to 223 bytes: `nqn.YYYY-MM.reverse.domain:name`. Default: derived
        /// once and persistent.
        subnqn: Option<String> | unset => Fixed;
        /// PCI vendor ID: 1 to 0xfffe. Default: 0x4e56.
        vendor_id: Option<u16> | unset => Fixed;
        /// PCI device ID: 1 to 0xfffe. Default: 0x0001.
        device_id: Option<u16> | unset => Fixed;
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
