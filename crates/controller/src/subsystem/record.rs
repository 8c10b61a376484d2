//! What of a subsystem outlives a restart of the program: plain data, written and read whole.
//!
//! The program writes it with a version of its format; a field that is added gets a default, so that what was written
//! before can be read. It says nothing about how media are opened: a namespace names its medium, and whoever reads the
//! record compares.

use serde::{Deserialize, Serialize};

use super::set::ControllerId;
use crate::admin::features::SavedFeatures;

/// A subsystem's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Every namespace that exists.
    pub namespaces: Vec<NamespaceRecord>,
    /// Names of configured namespaces that a host has deleted.
    #[serde(default)]
    pub deleted: Vec<String>,
    /// How many namespaces hosts have created: the next one's names are made from it.
    #[serde(default)]
    pub created: u64,
    /// Every controller that ever was, by identifier.
    pub controllers: Vec<ControllerRecord>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceRecord {
    /// Its identifier.
    pub nsid: u32,
    /// Its name in the configuration; none for one that a host created.
    #[serde(default)]
    pub name: Option<String>,
    /// The name of its medium.
    pub medium: String,
    /// First byte in the medium.
    pub start: u64,
    /// Bytes reserved there.
    pub len: u64,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// Globally unique identifier.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier.
    pub eui64: [u8; 8],
    /// It may be attached to several controllers.
    pub shared: bool,
    /// The controllers that have it attached.
    pub attached: Vec<ControllerId>,
    /// Blocks marked by Write Uncorrectable: first block and count.
    #[serde(default)]
    pub uncorrectable: Vec<(u64, u64)>,
}

/// What is kept of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerRecord {
    /// Its name in the configuration.
    pub name: String,
    /// Its identifier.
    pub id: ControllerId,
    /// What hosts have saved of its features.
    #[serde(default)]
    pub features: SavedFeatures,
}

impl ControllerRecord {
    /// Of a controller of which nothing is kept yet.
    #[must_use]
    pub fn new(name: &str, id: ControllerId) -> Self {
        ControllerRecord {
            name: name.to_owned(),
            id,
            features: SavedFeatures::default(),
        }
    }
}
