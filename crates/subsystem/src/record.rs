//! Subsystem state that outlives a restart of the program: plain data, written and read whole.
//!
//! The program writes it with a version of its format; a new field gets a default, so that older
//! records can be read. It does not describe how media are opened: a namespace names its medium,
//! and the reader of the record compares.

use port::BlockRanges;
use port::namespace::Namespace;
use serde::{Deserialize, Serialize};

use super::access::DEFAULT_ANA_GROUP;
use super::allocated::{Allocated, Busy, Pool};
use super::answers::KeptAnswer;
use super::notices::KeptNotice;
use super::reservation::Reservation;
use super::sanitize::SanitizeRecord;
use super::set::ControllerId;
use crate::health::HealthRecord;

/// A subsystem's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Every namespace that exists.
    pub namespaces: Vec<NamespaceRecord>,
    /// Names of configured namespaces that a host has deleted.
    #[serde(default)]
    pub deleted: Vec<String>,
    /// Number of namespaces that hosts have created: the next one's names are derived from it.
    #[serde(default)]
    pub created: u64,
    /// State of sanitize operations.
    #[serde(default)]
    pub sanitize: SanitizeRecord,
    /// Every controller that ever was, by identifier.
    pub controllers: Vec<ControllerRecord>,
    /// Answers of commands in flight whose effect is in this record, except of those whose effect
    /// is in `reservations`. For another process with the same hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<KeptAnswer>,
    /// Registrants and reservations as they are, those included that a power loss ends: for another
    /// process with the same hosts, and not part of what is written.
    #[serde(skip)]
    pub reservations: Vec<CurrentReservation>,
}

/// The registrants and the reservation of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurrentReservation {
    /// The namespace.
    pub nsid: u32,
    /// They.
    pub reservation: Reservation,
    /// Answers of commands in flight whose effect is in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<KeptAnswer>,
    /// Notifications of changes of it that controllers may not have taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<KeptNotice>,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Globally unique identifier; written as hexadecimal digits.
    #[serde(with = "digits")]
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; written as hexadecimal digits.
    #[serde(with = "digits")]
    pub eui64: [u8; 8],
    /// It may be attached to several controllers.
    pub shared: bool,
    /// The controllers that have it attached.
    pub attached: Vec<ControllerId>,
    /// Blocks marked by Write Uncorrectable: first block and count.
    #[serde(default)]
    pub uncorrectable: Vec<(u64, u64)>,
    /// Registrants and reservation, where they persist through a power loss.
    #[serde(default)]
    pub reservation: Option<Reservation>,
}

/// Bytes as hexadecimal digits, for readers of the record.
mod digits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<const N: usize, S: Serializer>(
        bytes: &[u8; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&digits)
    }

    pub(super) fn deserialize<'de, const N: usize, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(from)?;
        let wrong =
            || D::Error::custom(format_args!("`{text}` is not {} hexadecimal digits", 2 * N));
        if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; N];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = &text[2 * at..2 * at + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(bytes)
    }
}

/// Why a record of a namespace cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Its blocks have an impossible size.
    #[error("lba_size is {0}: only 512 and 4096 are supported")]
    BlockSize(u32),
    /// Its blocks are none, or do not fit into its bytes.
    #[error("{blocks} blocks do not fit into the {len} bytes at offset {start}")]
    Blocks {
        /// Size in blocks.
        blocks: u64,
        /// First byte.
        start: u64,
        /// Bytes reserved.
        len: u64,
    },
    /// Its medium has become smaller.
    #[error(
        "it occupies bytes {start} to {end} of media {medium}, which has only {bytes} bytes: enlarge the media again"
    )]
    Medium {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The medium's name.
        medium: String,
        /// Bytes of the medium.
        bytes: u64,
    },
    /// Its medium is opened so that it takes no such blocks.
    #[error(
        "lba_size is {lba_size}, but media {medium} supports no blocks below {min} with direct = \"on\": write direct = \"auto\""
    )]
    SmallBlocks {
        /// Bytes of a block.
        lba_size: u32,
        /// The medium's name.
        medium: String,
        /// The smallest that it takes.
        min: u32,
    },
    /// Its medium may leave a part of such a block written when the power fails.
    #[error(
        "lba_size is {lba_size}, but media {medium} reports only {max} bytes as atomic when the power fails (AWUPF, NAWUPF): write awupf = \"4KiB\" there if you know that its writes of 4 KiB are atomic"
    )]
    LargeBlocks {
        /// Bytes of a block.
        lba_size: u32,
        /// The medium's name.
        medium: String,
        /// The largest that it writes whole.
        max: u32,
    },
    /// Its marked blocks are too many, or not in it.
    #[error("its uncorrectable blocks are too many, or beyond its end")]
    Uncorrectable,
}

impl NamespaceRecord {
    /// The namespace, on the medium that the record names, in the default ANA group.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn restore(self, medium: &Pool) -> Result<Allocated, RestoreError> {
        let NamespaceRecord {
            nsid,
            name,
            medium: medium_name,
            start,
            len,
            blocks,
            lba_size,
            nguid,
            eui64,
            shared,
            attached,
            uncorrectable,
            reservation,
        } = self;
        let lba_shift = match lba_size {
            512 => 9,
            4096 => 12,
            _ => return Err(RestoreError::BlockSize(lba_size)),
        };
        let end = start.checked_add(len);
        // What has no blocks has a place all the same, whose size was told in blocks.
        let has_blocks = medium.set.as_ref().is_none_or(|set| set.has_blocks());
        let blocks = if has_blocks { blocks } else { 0 };
        let fits = (blocks > 0 || !has_blocks) && blocks <= len >> lba_shift;
        let Some(end) = end.filter(|_| fits) else {
            return Err(RestoreError::Blocks { blocks, start, len });
        };
        if end > medium.bytes {
            return Err(RestoreError::Medium {
                start,
                end,
                medium: medium_name,
                bytes: medium.bytes,
            });
        }
        if lba_size < medium.min_lba_bytes {
            return Err(RestoreError::SmallBlocks {
                lba_size,
                medium: medium_name,
                min: medium.min_lba_bytes,
            });
        }
        if lba_size > medium.max_lba_bytes {
            return Err(RestoreError::LargeBlocks {
                lba_size,
                medium: medium_name,
                max: medium.max_lba_bytes,
            });
        }
        Ok(Allocated {
            namespace: Namespace {
                nsid,
                channel: medium.channel,
                start,
                blocks,
                lba_shift,
                nguid,
                eui64,
                traits: medium.traits,
                restrictions: None,
                set: medium.set.clone(),
            },
            name,
            medium: medium_name,
            len,
            ana_group: DEFAULT_ANA_GROUP,
            shared,
            attached: attached.into_iter().collect(),
            min_lba_bytes: medium.min_lba_bytes,
            max_lba_bytes: medium.max_lba_bytes,
            busy: None,
            uncorrectable: marked(&uncorrectable, blocks).ok_or(RestoreError::Uncorrectable)?,
            reservation: reservation.unwrap_or_default().after_power_cycle(),
            hosts: None,
        })
    }
}

/// The set of these ranges, all of which lie in a namespace of so many blocks.
fn marked(ranges: &[(u64, u64)], blocks: u64) -> Option<BlockRanges> {
    let mut set = BlockRanges::default();
    for &(first, count) in ranges {
        first.checked_add(count).filter(|end| *end <= blocks)?;
        set.insert(first, count).ok()?;
    }
    Some(set)
}

/// Kept state of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerRecord {
    /// Its name in the configuration.
    pub name: String,
    /// Its identifier.
    pub id: ControllerId,
    /// Values of its features that hosts have saved.
    #[serde(default)]
    pub features: SavedFeatures,
    /// Its counters.
    #[serde(default)]
    pub health: HealthRecord,
}

/// Saved values of the features that can be saved, each as Dword 11 of its Set Features has it
/// (Base 2.1, 5.1.25).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SavedFeatures {
    /// Arbitration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arbitration: Option<u32>,
    /// Power Management.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_management: Option<u32>,
    /// Over temperature threshold, in kelvins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_temperature: Option<u16>,
    /// Under temperature threshold, in kelvins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_temperature: Option<u16>,
    /// Error Recovery of namespaces: identifier and value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub error_recovery: Vec<(u32, u32)>,
    /// The volatile write cache is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volatile_write_cache: Option<bool>,
    /// Interrupt Coalescing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_coalescing: Option<u32>,
    /// Interrupt vectors with Coalescing Disable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coalescing_disabled: Vec<u16>,
    /// Write Atomicity Normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_atomicity: Option<u32>,
    /// Asynchronous Event Configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_configuration: Option<u32>,
}

impl ControllerRecord {
    /// The record of a controller without kept state.
    #[must_use]
    pub fn new(name: &str, id: ControllerId) -> Self {
        ControllerRecord {
            name: name.to_owned(),
            id,
            features: SavedFeatures::default(),
            health: HealthRecord::default(),
        }
    }
}

impl Allocated {
    /// Its kept state; none while it is being created.
    pub(super) fn record(&self) -> Option<NamespaceRecord> {
        let Allocated {
            namespace,
            name,
            medium,
            len,
            // The configuration's.
            ana_group: _,
            shared,
            attached,
            min_lba_bytes: _,
            max_lba_bytes: _,
            busy,
            uncorrectable,
            reservation,
            hosts: _,
        } = self;
        let Namespace {
            nsid,
            channel: _,
            start,
            blocks,
            lba_shift,
            nguid,
            eui64,
            traits: _,
            restrictions: _,
            set: _,
        } = namespace;
        if *busy == Some(Busy::Creating) {
            return None;
        }
        Some(NamespaceRecord {
            nsid: *nsid,
            name: name.clone(),
            medium: medium.clone(),
            start: *start,
            len: *len,
            blocks: *blocks,
            lba_size: 1 << lba_shift,
            nguid: *nguid,
            eui64: *eui64,
            shared: *shared,
            attached: attached.iter().collect(),
            uncorrectable: uncorrectable.iter().collect(),
            reservation: reservation.persists().then(|| reservation.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use port::{ChannelId, MediumTraits};

    use super::*;

    fn pool() -> Pool {
        Pool {
            medium: "disk".to_owned(),
            channel: ChannelId(3),
            bytes: 1 << 20,
            traits: MediumTraits::default(),
            set: None,
            min_lba_bytes: 512,
            max_lba_bytes: 4096,
        }
    }

    fn record() -> NamespaceRecord {
        NamespaceRecord {
            nsid: 5,
            name: None,
            medium: "disk".to_owned(),
            start: 65_536,
            len: 8192,
            blocks: 15,
            lba_size: 512,
            nguid: [1; 16],
            eui64: [2; 8],
            shared: true,
            attached: vec![ControllerId(2), ControllerId(4)],
            uncorrectable: vec![(3, 2), (14, 1)],
            reservation: None,
        }
    }

    #[test]
    fn what_was_recorded_is_restored_and_recorded_again() {
        let allocated = record().restore(&pool()).unwrap();
        assert_eq!(allocated.namespace.channel, ChannelId(3));
        assert_eq!(allocated.namespace.lba_shift, 9);
        assert!(allocated.uncorrectable.overlaps(4, 1));
        assert!(!allocated.uncorrectable.overlaps(5, 9));
        assert_eq!(allocated.record(), Some(record()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |change: fn(&mut NamespaceRecord)| {
            let mut changed = record();
            change(&mut changed);
            changed.restore(&pool()).unwrap_err().to_string()
        };
        assert!(with(|r| r.lba_size = 520).contains("512 and 4096"));
        assert!(with(|r| r.blocks = 17).contains("do not fit"));
        assert!(with(|r| r.blocks = 0).contains("do not fit"));
        assert!(with(|r| r.start = u64::MAX - 8191).contains("do not fit"));
        let shrunk = with(|r| r.start = (1 << 20) - 4096);
        assert!(shrunk.contains("1044480 to 1052672 of media disk, which has only 1048576 bytes"));
        assert!(with(|r| r.uncorrectable = vec![(14, 2)]).contains("beyond its end"));
        assert!(with(|r| r.uncorrectable = vec![(1, u64::MAX)]).contains("beyond its end"));
        let coarse = Pool {
            min_lba_bytes: 4096,
            ..pool()
        };
        let small = record().restore(&coarse).unwrap_err().to_string();
        assert!(small.contains("supports no blocks below 4096"));
        let tearing = Pool {
            max_lba_bytes: 512,
            ..pool()
        };
        let mut large = record();
        assert!(large.clone().restore(&tearing).is_ok());
        (large.lba_size, large.blocks) = (4096, 2);
        large.uncorrectable.clear();
        assert!(large.clone().restore(&pool()).is_ok());
        let large = large.restore(&tearing).unwrap_err().to_string();
        assert!(large.contains("only 512 bytes as atomic"), "{large}");
    }
}
