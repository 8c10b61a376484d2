//! `tcp` of a controller with `listen = "nvme-tcp:ADDRESS:PORT"`: its table of keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Size;
use super::object::{Bounds, object};

/// Hosts of a subsystem at the same time, as far as it has room for their controllers.
const MAX_HOSTS: u64 = subsystem::MAX_DYNAMIC_CONTROLLERS as u64;

/// Use of the SUCCESS flag, by which the last piece of a read's data replaces its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Success {
    /// For hosts that disable submission queue flow control.
    #[default]
    Specified,
    /// For all hosts. For comparison with targets that do so.
    Always,
}

object! {
    /// NVMe/TCP options of a controller.
    #[derive(Eq)]
    pub struct Tcp(TcpKeys, "tcp") {
        /// Maximum size of write data in the command capsule of an I/O queue; larger data waits
        /// for the controller's request.
        in_capsule_data: Size = Size(8 << 10) => Fixed {
            bounds: Bounds::OneSizeOf(&[0, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]),
            value: "SIZE",
        };
        /// Accept header digests where a host asks for them.
        header_digest: bool = true => Fixed;
        /// Accept data digests where a host asks for them.
        data_digest: bool = true => Fixed;
        /// Hosts whose reads end with the data, without a response: `specified` for those that
        /// disable submission queue flow control, `always` for all.
        success: Success = Success::default() => Fixed;
        /// Hosts that may connect: their NQNs, or names of `[[host]]`.
        allow: Option<Vec<String>> | unset => Fixed {
            unset: "the hosts of `[[host]]`, or every host where there is none",
            value: "HOST",
        };
        /// Serve an address that other machines reach, although not every host is authenticated.
        /// Data of a host without a `tls_key` is not encrypted.
        allow_anonymous: bool = false => Fixed;
        /// Maximum memory for the data of one host's commands.
        memory: Size = Size(64 << 20) => Fixed {
            bounds: Bounds::Bytes(16 << 10, 64 << 30),
            value: "SIZE",
        };
        /// Maximum number of hosts at the same time.
        hosts: u16 = 64 => Fixed { bounds: Bounds::Whole(1, MAX_HOSTS), value: "N" };
    }
}

impl Default for Tcp {
    fn default() -> Self {
        let complete = TcpKeys::default().complete();
        complete.expect("no key is required")
    }
}
