//! The partition table of a drive, and its rules.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use api::Partition;
use api::config::{Range, Size};
use media::Medium;
use serde::{Deserialize, Serialize};

/// Alignment of a partition's start, which suits drives and file systems, and every block size.
const ALIGN: u64 = 1 << 20;
/// Unit of partition sizes: the largest logical block.
const UNIT: u64 = 4096;
/// Most partitions of a drive.
const MAX_PARTITIONS: usize = 1024;
/// Longest name.
const MAX_NAME_LEN: usize = 64;

/// Owner of a partition table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Owner {
    /// Namespace of an NVMe drive, at any address.
    Drive {
        /// Serial number of the drive.
        serial: String,
        /// Model number of the drive.
        model: String,
        /// Namespace identifier.
        nsid: u32,
        /// Subsystem NQN and identifiers of the namespace of a drive over a network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
    },
    /// File or block device.
    File {
        /// Absolute path, with links resolved.
        path: std::path::PathBuf,
    },
}

impl Owner {
    /// The owner of an open medium, which is a drive or the file at `path`. `None` for a drive
    /// without a serial number, which cannot be identified.
    ///
    /// # Errors
    /// The file's path cannot be resolved.
    pub fn of(medium: &Medium, path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        if let Some(path) = path {
            let shown = path.display();
            let path = path.canonicalize();
            let path = path.with_context(|| format!("cannot find {shown}"))?;
            return Ok(Some(Owner::File { path }));
        }
        let identity = medium.drive().filter(|drive| !drive.serial.is_empty());
        Ok(identity.map(|drive| Owner::Drive {
            serial: drive.serial.to_owned(),
            model: drive.model.to_owned(),
            nsid: drive.nsid,
            volume: drive.volume,
        }))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Drive {
                serial,
                model,
                nsid,
                volume: _,
            } => {
                write!(f, "namespace {nsid} of drive {serial} ({model})")
            }
            Owner::File { path } => write!(f, "{}", path.display()),
        }
    }
}

/// A range of a drive that is in use by something other than a partition.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Description of the user.
    pub by: String,
    /// Range on the drive.
    pub range: Range,
}

/// The partitions of a drive, in order of their start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    bytes: u64,
    partitions: Vec<Partition>,
}

impl Table {
    /// The table of a drive of `bytes` bytes.
    ///
    /// # Errors
    /// A problem of the partitions.
    pub(crate) fn new(bytes: u64, mut partitions: Vec<Partition>) -> Result<Self, String> {
        partitions.sort_by_key(|p| p.range.start);
        for (index, partition) in partitions.iter().enumerate() {
            let Partition { name, range, .. } = partition;
            check_name(name)?;
            let aligned = range.start.0.is_multiple_of(ALIGN) && range.len().is_multiple_of(UNIT);
            if !aligned {
                return Err(format!(
                    "partition `{name}` has {range}, which is not aligned"
                ));
            }
            if range.end.0 > bytes {
                return Err(format!(
                    "partition `{name}` has {range}, beyond the size of {}",
                    Size(bytes)
                ));
            }
            let mut before = partitions[..index].iter();
            if before.any(|other| other.name == *name || other.range.overlaps(*range)) {
                return Err(format!(
                    "partition `{name}` is listed twice, or overlaps another one"
                ));
            }
        }
        if partitions.len() > MAX_PARTITIONS {
            return Err(format!("it has more than {MAX_PARTITIONS} partitions"));
        }
        Ok(Table { bytes, partitions })
    }

    /// Size of the drive in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All partitions, in order of their start.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// A partition by name.
    ///
    /// # Errors
    /// No partition has that name; the message lists the existing ones.
    pub(crate) fn find(&self, name: &str) -> Result<&Partition, String> {
        let found = self.partitions.iter().find(|p| p.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.partitions.iter().map(|p| p.name.as_str()).collect();
            match names.as_slice() {
                [] => format!(
                    "there is no partition `{name}`, nor any other: create one with `nvmirage partition create`"
                ),
                names => format!("there is no partition `{name}`; there are {}", names.join(", ")),
            }
        })
    }

    /// A partition by name that namespaces can use.
    ///
    /// # Errors
    /// No partition has that name, or the partition is being deleted.
    pub(crate) fn usable(&self, name: &str) -> Result<&Partition, String> {
        match self.find(name)? {
            Partition { deleting: true, .. } => Err(format!(
                "partition `{name}` is being deleted: if that was interrupted, delete it again"
            )),
            partition => Ok(partition),
        }
    }

    /// The first partition that overlaps `range`.
    pub(crate) fn overlapping(&self, range: Range) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.range.overlaps(range))
    }

    /// Adds a partition at `at`, or in the first gap that is large enough.
    ///
    /// # Errors
    /// There is no room, or an argument is invalid; the message says why, and where there is room.
    pub fn create(
        &mut self,
        name: &str,
        size: Size,
        at: Option<Size>,
        taken: &[Taken],
    ) -> Result<Range, String> {
        check_name(name)?;
        check_size(size)?;
        if self.partitions.iter().any(|p| p.name == name) {
            return Err(format!(
                "partition `{name}` already exists; choose another name"
            ));
        }
        if self.partitions.len() == MAX_PARTITIONS {
            return Err(format!("a drive has at most {MAX_PARTITIONS} partitions"));
        }
        let range = match at {
            Some(start) => self.place_at(start, size, taken)?,
            None => self.first_gap(size, taken)?,
        };
        let index = self
            .partitions
            .partition_point(|p| p.range.start < range.start);
        let partition = Partition {
            name: name.to_owned(),
            range,
            deleting: false,
        };
        self.partitions.insert(index, partition);
        Ok(range)
    }

    fn place_at(&self, start: Size, size: Size, taken: &[Taken]) -> Result<Range, String> {
        if !start.0.is_multiple_of(ALIGN) {
            return Err(format!(
                "it cannot start at {start}: partitions start at multiples of {}",
                Size(ALIGN)
            ));
        }
        let end = start.0.checked_add(size.0).filter(|end| *end <= self.bytes);
        let Some(end) = end.map(Size) else {
            return Err(format!(
                "{size} from {start} end beyond the drive's size of {}",
                Size(self.bytes)
            ));
        };
        let range = Range { start, end };
        match self.taken(taken).find(|t| t.range.overlaps(range)) {
            Some(other) => Err(format!(
                "{range} overlaps {}, which has {}: choose another start, or remove it",
                other.by, other.range
            )),
            None => Ok(range),
        }
    }

    fn first_gap(&self, size: Size, taken: &[Taken]) -> Result<Range, String> {
        let gaps = self.gaps(taken);
        let fits = gaps.iter().find(|gap| gap.len() >= size.0);
        if let Some(gap) = fits {
            return Ok(Range {
                start: gap.start,
                end: Size(gap.start.0 + size.0),
            });
        }
        Err(match gaps.iter().map(|gap| gap.len()).max() {
            Some(most) => format!(
                "there is no gap of {size}: the largest one has {}",
                Size(most / UNIT * UNIT)
            ),
            None => format!("there is no room for {size}: all of the drive is used"),
        })
    }

    /// The free ranges, each from an aligned start on.
    pub fn gaps(&self, taken: &[Taken]) -> Vec<Range> {
        let mut all: Vec<Range> = self.taken(taken).map(|t| t.range).collect();
        all.sort_by_key(|range| range.start);
        let whole = Size(self.bytes / UNIT * UNIT);
        let mut gaps = Vec::new();
        let mut start = 0_u64;
        for end in all.iter().map(|r| (r.start, r.end)).chain([(whole, whole)]) {
            let (next, behind) = end;
            let aligned = start.checked_next_multiple_of(ALIGN);
            if let Some(from) = aligned.filter(|from| *from < next.0) {
                gaps.push(Range {
                    start: Size(from),
                    end: next,
                });
            }
            start = start.max(behind.0);
        }
        gaps
    }

    fn taken(&self, others: &[Taken]) -> impl Iterator<Item = Taken> {
        let partitions = self.partitions.iter().map(|p| Taken {
            by: format!("partition `{}`", p.name),
            range: p.range,
        });
        partitions.chain(others.to_vec())
    }

    /// Extends a partition into the free space after it. Its start stays. Returns the new range.
    ///
    /// # Errors
    /// There is no room, or the size is invalid; the message says how large the partition can
    /// become.
    pub fn grow(&mut self, name: &str, size: Size, taken: &[Taken]) -> Result<Range, String> {
        let range = self.usable(name)?.range;
        check_size(size)?;
        if size.0 < range.len() {
            return Err(format!(
                "partition `{name}` has {}, and {size} is less: a partition can only grow",
                Size(range.len())
            ));
        }
        let next = self
            .taken(taken)
            .filter(|t| t.range.start >= range.end)
            .min_by_key(|t| t.range.start);
        let (end, what) = match &next {
            Some(next) => (
                next.range.start.0,
                format!("{} begins at {}", next.by, next.range.start),
            ),
            None => (
                self.bytes,
                format!("the drive ends at {}", Size(self.bytes)),
            ),
        };
        let most = (end - range.start.0) / UNIT * UNIT;
        if size.0 > most {
            return Err(format!(
                "partition `{name}` starts at {} and can have at most {}: {what}",
                range.start,
                Size(most)
            ));
        }
        let grown = Range {
            start: range.start,
            end: Size(range.start.0 + size.0),
        };
        self.partition_mut(name).range = grown;
        Ok(grown)
    }

    /// Marks a partition as being deleted.
    ///
    /// # Errors
    /// No partition has that name.
    pub fn begin_delete(&mut self, name: &str) -> Result<Range, String> {
        let range = self.find(name)?.range;
        self.partition_mut(name).deleting = true;
        Ok(range)
    }

    /// Removes a partition.
    ///
    /// # Errors
    /// No partition has that name.
    pub fn delete(&mut self, name: &str) -> Result<(), String> {
        self.find(name)?;
        self.partitions.retain(|p| p.name != name);
        Ok(())
    }

    fn partition_mut(&mut self, name: &str) -> &mut Partition {
        let found = self.partitions.iter_mut().find(|p| p.name == name);
        found.expect("it was found before")
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(format!(
        "`{name}` is not a partition name: write 1 to {MAX_NAME_LEN} letters, digits, `.`, `_` or `-`"
    ))
}

fn check_size(size: Size) -> Result<(), String> {
    if size.0 > 0 && size.0.is_multiple_of(UNIT) {
        return Ok(());
    }
    Err(format!("invalid size {size}: write a multiple of 4KiB"))
}

#[cfg(test)]
mod tests;
