//! Snapshot of a drive's state at one moment, taken while it works: a part at a time, so that
//! nothing waits for it.
//!
//! A snapshot begins with the small parts: counters, and the state of lines. The map follows in
//! parts, in the order of logical pages. A page whose place changes before its turn is copied
//! first. So the copy is the map of the beginning, whatever the drive does meanwhile.
//!
//! Not included: allocation of memory for the map ([`Room`] is created before, elsewhere), and
//! writing to files.

use super::ftl::Ftl;
use super::map_copy::MapCopy;
use super::state::{put_head, put_shape, put_short, seal};
use super::{Flash, Geometry};
use crate::error::ParameterError;

/// Memory for the snapshot of a drive of one shape.
#[derive(Debug)]
pub struct Room {
    maps: Vec<MapCopy>,
}

impl Room {
    /// Allocates memory for drives of this shape, and touches all of it, so that filling it causes
    /// no page faults.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(geometry: &Geometry) -> Result<Self, ParameterError> {
        let maps = (0..geometry.partitions).map(|_| MapCopy::new(geometry.logical));
        Ok(Self {
            maps: maps.collect::<Result<_, _>>()?,
        })
    }

    fn fits(&self, geometry: &Geometry) -> bool {
        let as_long = |map: &MapCopy| map.entries().len() == geometry.logical as usize;
        self.maps.len() == geometry.partitions as usize && self.maps.iter().all(as_long)
    }
}

/// The parts of an unfinished snapshot other than the maps, which are with their partitions.
#[derive(Debug)]
pub(super) struct Taking {
    head: Vec<u8>,
    heads: Vec<Vec<u8>>,
}

/// The complete state of a drive.
#[derive(Debug)]
pub struct Snapshot {
    head: Vec<u8>,
    partitions: Vec<(Vec<u8>, MapCopy)>,
}

impl Snapshot {
    /// The bytes that [`Flash::save`] would have written when it was begun.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        let mut out = self.head;
        for (head, map) in self.partitions {
            out.extend_from_slice(&head);
            let entries = map.entries();
            out.reserve(size_of_val(entries));
            entries.iter().for_each(|&entry| put_short(&mut out, entry));
        }
        seal(&mut out, 0);
        out
    }
}

impl Flash {
    /// Begins a snapshot of the drive's current state. Drops an unfinished one.
    ///
    /// # Panics
    ///
    /// The room is for a drive of another shape.
    pub fn begin_snapshot(&mut self, room: Room) {
        assert!(room.fits(&self.geometry), "a room of this drive's shape");
        let mut head = Vec::new();
        put_shape(&self.geometry, self.prepared, &mut head);
        let mut heads = Vec::with_capacity(self.partitions.len());
        for (partition, map) in self.partitions.iter_mut().zip(room.maps) {
            let mut its = Vec::new();
            put_head(partition, &mut its);
            heads.push(its);
            partition.ftl.taken = Some(Box::new(map));
        }
        self.taking = Some(Taking { head, heads });
    }

    /// Whether a snapshot is in progress.
    pub fn takes_snapshot(&self) -> bool {
        self.taking.is_some()
    }

    /// Copies about `pages` more pages of the map; returns the snapshot if these were the last
    /// ones.
    pub fn continue_snapshot(&mut self, pages: u32) -> Option<Snapshot> {
        let mut left = pages;
        for partition in &mut self.partitions {
            left -= partition.ftl.take_snapshot(left).min(left);
            if left == 0 {
                break;
            }
        }
        let whole = |map: &Option<Box<MapCopy>>| map.as_ref().is_some_and(|map| map.is_whole());
        if !self.partitions.iter().all(|p| whole(&p.ftl.taken)) {
            return None;
        }
        let Taking { head, heads } = self.taking.take()?;
        let maps = self.partitions.iter_mut();
        let maps = maps.filter_map(|partition| partition.ftl.taken.take());
        Some(Snapshot {
            head,
            partitions: heads.into_iter().zip(maps.map(|map| *map)).collect(),
        })
    }
}

impl Ftl {
    /// Copies up to about `pages` of the map, and returns their number.
    fn take_snapshot(&mut self, pages: u32) -> u32 {
        let Some(mut map) = self.taken.take() else {
            return 0;
        };
        let copied = if map.is_whole() {
            0
        } else {
            map.take(|page| self.place_entry(page), pages)
        };
        self.taken = Some(map);
        copied
    }
}
