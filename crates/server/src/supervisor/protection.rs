//! Media that become read-only or writable again while they are served. Hosts see the change
//! (NSATTR, and an event), and the controller rejects their writes before the medium sees them.
//!
//! A thread polls the media: at once after a rejected write, and periodically, because the kernel
//! sends no notification. The command path does not poll.

use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{io, thread};

use subsystem::OperatorRequest;

use super::{State, Supervisor};

/// Polling interval of media without rejected writes.
const PAUSE: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Starts the thread; it ends with the supervisor.
    pub(crate) fn watch_protection(self: &Arc<Self>) -> io::Result<()> {
        let supervisor = Arc::downgrade(self);
        let watch = move |supervisor: &Weak<Supervisor>| {
            while let Some(supervisor) = supervisor.upgrade() {
                supervisor.lock().follow_protection();
                drop(supervisor);
                thread::park_timeout(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("devices".into());
        let thread = thread.spawn(move || watch(&supervisor))?;
        self.lock()
            .troubles
            .wake_for_read_only(thread.thread().clone());
        Ok(())
    }
}

impl State {
    fn follow_protection(&self) {
        for open in &self.media {
            if !open.medium.look_read_only() {
                continue;
            }
            let (media, read_only) = (open.name.as_str(), open.medium.traits().read_only);
            if read_only {
                tracing::warn!(
                    media,
                    "the medium became read-only: its namespaces are write protected until it accepts writes again"
                )
            } else {
                tracing::info!(
                    media,
                    "the medium accepts writes again: its namespaces are no longer write protected"
                )
            }
            if let Err(error) = self.protect(media, read_only) {
                tracing::error!(media, "cannot notify its hosts: {error}");
            }
        }
    }

    /// Notifies every subsystem that has a namespace on a medium.
    fn protect(&self, media: &str, read_only: bool) -> Result<(), api::Refusal> {
        let views = self.views();
        for (live, view) in views.map_err(|error| api::Refusal::failed(&error))? {
            let here = view.namespaces.iter().filter(|n| n.medium == media);
            for namespace in here {
                let request = OperatorRequest::SetReadOnly {
                    nsid: namespace.nsid(),
                    read_only,
                };
                self.ask(live.reactor, live.slot, request)?;
            }
        }
        Ok(())
    }
}
