//! `nbd` of a controller with `listen = "nbd:…"`: its table of keys.

use super::object::{Bounds, object};

/// Clients of a subsystem at the same time, as far as it has room for their controllers.
const MAX_CLIENTS: u64 = subsystem::MAX_DYNAMIC_CONTROLLERS as u64;

object! {
    /// NBD options of a controller.
    #[derive(Eq)]
    pub struct Nbd(NbdKeys, "nbd") {
        /// Maximum number of clients at the same time; each connection is one. A client uses up to
        /// 5 MiB of memory for data.
        clients: u16 = 16 => Fixed { bounds: Bounds::Whole(1, MAX_CLIENTS), value: "N" };
        /// Serve a TCP address that other machines reach, although NBD clients are neither
        /// authenticated nor their data encrypted.
        allow_anonymous: bool = false => Fixed;
    }
}

impl Nbd {
    /// Maximum memory of one client for data, in bytes.
    pub const CLIENT_MEMORY: u64 = 5 << 20;
}

impl Default for Nbd {
    fn default() -> Self {
        let complete = NbdKeys::default().complete();
        complete.expect("no key is required")
    }
}
