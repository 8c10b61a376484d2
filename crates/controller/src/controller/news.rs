//! Changes that a controller has yet to send to its lanes, and how many messages hosts may know of.
//!
//! Invariant: a change is counted before the host can learn of it. A lane on another reactor
//! fetches nothing before it has received as many messages (`memory::MailCount`).

use std::sync::Arc;

use memory::MailCount;

#[derive(Debug, Default)]
pub(crate) struct News {
    mail_count: Arc<MailCount>,
    due: Due,
}

/// Changes of which every lane must be informed in the next turn.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// The host's memory map.
    pub(super) view: bool,
    /// The namespaces.
    pub(super) namespaces: bool,
    /// Hanging commands that were issued before the view with this epoch are to be aborted.
    pub(super) abandon_before: Option<u64>,
}

impl News {
    /// Count of messages to lanes that hosts may know of.
    pub(crate) fn mail_count(&self) -> &Arc<MailCount> {
        &self.mail_count
    }

    /// A message is about to be sent that a host may know of.
    pub(crate) fn count(&self) {
        self.mail_count.add();
    }

    /// The host's memory map has changed.
    pub(super) fn view_changed(&mut self) {
        self.due.view = true;
        self.mail_count.add();
    }

    /// The attached namespaces have changed.
    pub(super) fn namespaces_changed(&mut self) {
        self.due.namespaces = true;
        self.mail_count.add();
    }

    /// Hanging commands that were issued before the view with this epoch are to be aborted.
    pub(super) fn abandon(&mut self, before_epoch: u64) {
        let before = self.due.abandon_before.unwrap_or(0).max(before_epoch);
        self.due.abandon_before = Some(before);
    }

    /// Whether lanes must be informed of anything.
    pub(super) fn is_due(&self) -> bool {
        self.due.view || self.due.namespaces || self.due.abandon_before.is_some()
    }

    /// Takes what lanes must be informed of.
    pub(super) fn take(&mut self) -> Due {
        std::mem::take(&mut self.due)
    }
}
