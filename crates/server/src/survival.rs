//! State that survives the death of a server's process, where a holder starts the next one.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use api::config;
use driver::bus::place::Place;
use holder::Holder;
use media::drive::KeepsFunction;
use memory::vfio::Descriptors;

/// Name under which a holder keeps the text of the configuration.
pub const CONFIGURATION: &str = "configuration";

/// Why a medium does not survive its server's process; `None` where it does.
pub(crate) fn obstacle(medium: &config::Medium) -> Option<&'static str> {
    let records = medium.timing.as_ref().is_some_and(|it| it.record.is_some());
    let target = medium.drive().map(|drive| &drive.target);
    if records {
        Some("the recording of its timing model is lost with the process")
    } else if let Some(Place::NvmeTcp(_)) = target {
        Some(
            "a target over NVMe/TCP may execute commands of this process after those of the next one",
        )
    } else {
        None
    }
}

/// The holder of this process, as it keeps a drive of this machine.
#[derive(Debug)]
pub(crate) struct KeptFunction {
    holder: Arc<Holder>,
    /// Names of the descriptors.
    names: Descriptors<String>,
    /// The kept state is of this medium, and not of an earlier one with its name.
    continues: bool,
}

impl KeptFunction {
    /// The state of a medium.
    pub(crate) fn new(holder: &Arc<Holder>, medium: &str, continues: bool) -> Self {
        Self {
            holder: holder.clone(),
            names: function_names(medium),
            continues,
        }
    }
}

impl KeepsFunction for KeptFunction {
    fn fetch(&self) -> io::Result<Option<Descriptors>> {
        if !self.continues {
            return Ok(None);
        }
        // Each is fetched: the holder closes one that this process has not asked for.
        let fetch = |name| self.holder.fetch(name).map_err(io::Error::other);
        let fds: [Option<OwnedFd>; 3] = [
            fetch(&self.names.device)?,
            fetch(&self.names.group)?,
            fetch(&self.names.container)?,
        ];
        let [Some(device), Some(group), Some(container)] = fds else {
            // The last process died while it had them kept, or released.
            self.release()?;
            return Ok(None);
        };
        Ok(Some(Descriptors {
            device,
            group,
            container,
        }))
    }

    fn keep(&self, fds: Descriptors<BorrowedFd<'_>>) -> io::Result<()> {
        let names = &self.names;
        for (name, fd) in [
            (&names.container, fds.container),
            (&names.group, fds.group),
            (&names.device, fds.device),
        ] {
            let kept = self.holder.keep_device(name, fd);
            kept.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        let names = &self.names;
        let forget = |name: &String| self.holder.forget(name).map_err(io::Error::other);
        let forgotten = [&names.device, &names.group, &names.container].map(forget);
        forgotten.into_iter().collect()
    }
}

/// Names under which a holder keeps the descriptors of a drive of this machine.
pub(crate) fn function_names(medium: &str) -> Descriptors<String> {
    Descriptors {
        device: format!("function {medium}"),
        group: format!("function group {medium}"),
        container: format!("function container {medium}"),
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

/// Name under which a holder keeps the listening socket of a controller with a TCP address.
pub(crate) fn listener_name(controller: &str) -> String {
    format!("listener {controller}")
}

/// Name under which a holder keeps the socket to the process of a mount.
pub(crate) fn mount_name(controller: &str) -> String {
    format!("mount {controller}")
}

/// Name under which a holder keeps the path of the socket that a mount is attached to.
pub(crate) fn mount_socket_name(controller: &str) -> String {
    format!("mount socket {controller}")
}
