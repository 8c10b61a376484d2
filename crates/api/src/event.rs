//! Events of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// An operator created the object.
    Created,
    /// An operator changed the object.
    Changed,
    /// An operator deleted the object.
    Deleted,
    /// A host attached to the controller.
    HostAttached,
    /// The host detached from the controller.
    HostDetached,
    /// The server released the files of the controller, for another server.
    MediaReleased,
    /// The server has the files of the controller, and another server has not.
    MediaClaimed,
    /// Queues of the controller moved to other reactors.
    QueuesMoved,
    /// Requests to the medium fail.
    MediaError,
    /// Requests to the medium succeed again.
    MediaRecovered,
    /// Another process of the server continues with the hosts of the last one.
    ProcessReplaced,
}

impl What {
    /// The name, as in its JSON form.
    pub fn name(self) -> &'static str {
        match self {
            What::Created => "created",
            What::Changed => "changed",
            What::Deleted => "deleted",
            What::HostAttached => "host-attached",
            What::HostDetached => "host-detached",
            What::MediaReleased => "media-released",
            What::MediaClaimed => "media-claimed",
            What::QueuesMoved => "queues-moved",
            What::MediaError => "media-error",
            What::MediaRecovered => "media-recovered",
            What::ProcessReplaced => "process-replaced",
        }
    }
}

/// Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Number of the event, counted from 1 at the start of the server.
    pub id: u64,
    /// Time in nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Type of the event.
    pub event: What,
    /// Kind of the object: `media`, `namespace`, `controller`, `tenant`, `partition`, `trace` or
    /// `process`, whose name is its number.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Cause of `media-error` and `media-recovered`: `no-space`, `file-size`, `read-only`, `gone`,
    /// `read` or `write`. Of `process-replaced`, what ended the process before: a signal, an exit
    /// status, or `upgrade`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}
