//! What survives the death of a server's process, where a holder replaces it.

use api::config::{self, Backing};
use driver::bus::place::Place;

/// Name under which a holder keeps the text of the configuration.
pub const CONFIGURATION: &str = "configuration";

/// Why a medium does not survive its server's process; `None` where it does.
pub(crate) fn obstacle(medium: &config::Medium) -> Option<&'static str> {
    if medium.timing.as_ref().is_some_and(|it| it.record.is_some()) {
        return Some("the recording of its timing model is lost with the process");
    }
    match &medium.backing {
        _ if medium.state().is_some() => Some("its state file is read by the first process"),
        Backing::Null { .. } | Backing::Ram { .. } | Backing::File(_) | Backing::KeyValue(_) => {
            None
        }
        Backing::Drive(drive) => match drive.target {
            Place::VfioUser(_) => None,
            Place::Pci(_) => Some("a drive of this machine has no process that ends its commands"),
        },
    }
}

/// Name under which a holder keeps the reservations of a subsystem.
pub(crate) fn reservations_name(subsystem: &str) -> String {
    format!("reservations {subsystem}")
}

/// Name under which a holder keeps the memory of a medium, or the properties of a drive.
pub(crate) fn memory_name(medium: &str) -> String {
    format!("medium {medium}")
}

/// Name under which a holder keeps the zones of a medium.
pub(crate) fn zones_name(medium: &str) -> String {
    format!("zones {medium}")
}

/// Name under which a holder keeps the checkpoint of a medium's timing model.
pub(crate) fn timing_name(medium: &str) -> String {
    format!("timing {medium}")
}

/// Name under which a holder keeps what the vendor commands of a medium have set.
pub(crate) fn vendor_name(medium: &str) -> String {
    format!("vendor {medium}")
}

/// Name under which a holder keeps the socket to the process of a mount.
pub(crate) fn mount_name(controller: &str) -> String {
    format!("mount {controller}")
}

/// Name under which a holder keeps the path of the socket that a mount is attached to.
pub(crate) fn mount_socket_name(controller: &str) -> String {
    format!("mount socket {controller}")
}
