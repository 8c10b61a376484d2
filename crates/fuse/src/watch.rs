//! The thread that keeps the files in step with the drive's namespaces. It uses the controller's
//! admin queue, where an Asynchronous Event Request is always outstanding, and also ends a lost
//! mount.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::anyhow;
use driver::bus::Bus;
use driver::bus::vfio_user::VfioUser;
use driver::{Device, DriverError};
use fuser::{INodeNo, Notifier};
use nvme_spec::Status;
use nvme_spec::features::{FeatureId, Select};
use nvme_spec::log::LogPageId;

use super::files::{Changes, Found, ROOT};
use super::filesystem::Shared;
use super::loss::caught;

/// Interval of checks for events, and for the presence of the server.
const PAUSE: Duration = Duration::from_millis(20);
/// Namespace Attribute Notices of Asynchronous Event Configuration (Base 2.1, 5.1.25.1.8).
const NAMESPACE_NOTICES: u32 = 1 << 8;

/// The watch thread.
pub(super) struct Watch {
    thread: JoinHandle<Device<VfioUser>>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// Starts the thread, which notifies the kernel through `notifier`.
    pub(super) fn start(
        mut device: Device<VfioUser>,
        shared: Arc<Shared>,
        notifier: Notifier,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = stop.clone();
        let name = format!("namespaces of {}", shared.loss.dir().display());
        let thread = thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            match caught(|| watch(&mut device, &shared, &notifier, &its_stop)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => shared.give_up(&error),
                Err(panicked) => shared.give_up(&panicked),
            }
            if shared.loss.is_declared() {
                // the loss may concern a single carrier so far
                shared.end_requests();
                shared.end();
            }
            device
        })?;
        Ok(Watch { thread, stop })
    }

    /// Ends the thread.
    pub(super) fn stop(self) -> anyhow::Result<Device<VfioUser>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let device = self.thread.join();
        device.map_err(|_| anyhow!("the thread that watches namespaces panicked"))
    }
}

/// The namespaces of a drive that can be files; others are logged and skipped.
pub(super) fn find(device: &mut Device<VfioUser>) -> Result<Vec<Found>, DriverError> {
    let mut all = Vec::new();
    for nsid in device.active_namespaces()? {
        let found = device.namespace(nsid).and_then(|namespace| {
            let identity = device.identify_namespace(nsid)?;
            Ok(Found {
                namespace,
                identity: (identity.nguid, identity.eui64),
                read_only: identity.nsattr.cwp(),
            })
        });
        match found {
            Ok(found) => all.push(found),
            Err(DriverError::Unsupported(why)) => tracing::warn!("no file for it: {why}"),
            // detached in the meantime
            Err(DriverError::Status {
                status: Status::INVALID_NAMESPACE_OR_FORMAT,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn watch(
    device: &mut Device<VfioUser>,
    shared: &Shared,
    notifier: &Notifier,
    stop: &AtomicBool,
) -> Result<(), DriverError> {
    let config = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
    let notices = device.get_feature(config, Select::CURRENT, 0, 0)?;
    let notices = device.set_feature(config, 0, notices | NAMESPACE_NOTICES);
    match notices {
        Ok(_) => {}
        // a drive without changes of namespaces
        Err(DriverError::Status { status, .. }) => {
            tracing::debug!("the drive does not report changes of its namespaces: {status}");
        }
        Err(error) => return Err(error),
    }
    device.request_event()?;
    // changes between the first look and the event request
    update(device, shared, notifier)?;
    while !stop.load(Ordering::Relaxed) && !shared.loss.is_declared() {
        #[cfg(feature = "testing")]
        crate::testing::strike();
        device.bus().check_alive()?;
        if shared.is_abandoned() {
            shared.give_up(&"no thread reads its requests");
            break;
        }
        if device.poll_event()?.is_some() {
            // reading the log page enables the next event (Base 2.1, 5.1.2.1)
            let log = LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST;
            let mut page = [0; 4096];
            match device.get_log_page(log, u32::MAX, 0, &mut page) {
                Ok(()) | Err(DriverError::Status { .. }) => {}
                Err(error) => return Err(error),
            }
            device.request_event()?;
            update(device, shared, notifier)?;
            continue;
        }
        thread::park_timeout(PAUSE);
    }
    Ok(())
}

/// Updates the files to the drive's current namespaces, and notifies the kernel.
fn update(
    device: &mut Device<VfioUser>,
    shared: &Shared,
    notifier: &Notifier,
) -> Result<(), DriverError> {
    let found = find(device)?;
    let changes = {
        let files = shared.files.write();
        files.unwrap_or_else(PoisonError::into_inner).update(&found)
    };
    tell(&changes, notifier);
    Ok(())
}

fn tell(changes: &Changes, notifier: &Notifier) {
    for file in &changes.added {
        tracing::info!("{}: new file of {} bytes", file.name(), file.len());
    }
    for file in &changes.changed {
        tracing::info!("{}: resized to {} bytes", file.name(), file.len());
        let told = notifier.inval_inode(INodeNo(file.inode), 0, 0);
        report(told);
    }
    for file in &changes.removed {
        tracing::info!("{}: its namespace was removed", file.name());
        let name = file.name();
        let told = notifier.delete(INodeNo(ROOT), INodeNo(file.inode), OsStr::new(&name));
        report(told);
    }
}

/// Without a notification, the kernel's cached attributes expire within a second.
fn report(told: std::io::Result<()>) {
    if let Err(error) = told {
        tracing::debug!("cannot notify the kernel of a change: {error}");
    }
}
