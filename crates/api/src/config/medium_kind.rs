//! `kind` of `[[media]]`, which also says in the tables of keys which media have a key.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediumKind {
    /// Discard writes and leave read buffers untouched; for measuring.
    Null,
    /// Memory of the server process; not persistent without `state`.
    Ram,
    /// Regular file or block device.
    File,
    /// Namespace of an NVMe drive, shared by hosts.
    Drive,
    /// Keys and values in memory of the server process; persistent with `path` or `state`.
    KeyValue,
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediumKind::Null => "null",
            MediumKind::Ram => "ram",
            MediumKind::File => "file",
            MediumKind::Drive => "drive",
            MediumKind::KeyValue => "keyvalue",
        })
    }
}
