//! Handles on a medium, one for each reactor: its bytes, what lies over them, and its timing.

use std::io;
use std::sync::Arc;

use memory::{EventFd, MAX_CLAIMANTS};

use super::{Backing, MAX_DEPTH, Medium};
use crate::channel::{Channel, Kind, Source, Surveyor, TimedChannel};
use crate::null::NullChannel;
use crate::ram::{self, RamChannel};
use crate::scripted::ScriptedChannel;

impl Medium {
    /// Creates a handle for one reactor, with at most `depth` commands in flight (between 1 and
    /// [`MAX_DEPTH`]). Any thread may create it; it belongs to the thread that first submits.
    ///
    /// # Errors
    /// The system's, if io_uring is unavailable for a file; and more than [`MAX_CLAIMANTS`]
    /// channels, or more than one of a medium with timing.
    pub fn channel(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let depth = depth.clamp(1, MAX_DEPTH);
        if !self.timing.is_there() {
            return self.with_zones(depth);
        }
        let model = self.timing.lend().ok_or_else(|| {
            io::Error::other(
                "a medium with a timing model is served by one reactor: give all controllers that use it the same `reactor`",
            )
        })?;
        let inner = self.with_zones(depth)?;
        Ok(inner.timed(|inner| TimedChannel::new(inner, model, depth)))
    }

    /// Creates a handle without timing.
    fn with_zones(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let below = self.bytes(depth)?;
        if let Some(vendor) = &self.vendor {
            let channel = vendor.channel(below).ok_or_else(|| {
                io::Error::other(
                    "a medium with vendor commands is served by one reactor: give all controllers that use it the same `reactor`",
                )
            })?;
            return Ok(Kind::Vendor(Box::new(channel)).into());
        }
        let Some(zoned) = &self.zoned else {
            return Ok(below);
        };
        let channel = zoned.channel(below, (depth, self.slice()))?;
        Ok(Kind::Zoned(Box::new(channel)).into())
    }

    /// Bytes per copy.
    fn slice(&self) -> u32 {
        if self.has_timing() {
            ram::TIMED_SLICE
        } else {
            ram::SLICE
        }
    }

    /// Creates a handle for the bytes alone.
    fn bytes(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let claimant = || {
            let claimant = self.claims.claimant();
            claimant.ok_or_else(|| {
                io::Error::other(format!(
                    "a medium has at most {MAX_CLAIMANTS} channels: let fewer reactors use it"
                ))
            })
        };
        let slice = self.slice();
        let kind = match &self.backing {
            Backing::Null => Kind::Null(NullChannel),
            Backing::Scripted(_) => Kind::Scripted(Box::new(ScriptedChannel::new())),
            Backing::Ram(store) => {
                let channel = RamChannel::new(Arc::clone(store), claimant()?, slice);
                let kind = Kind::Ram(Box::new(channel));
                if !self.traits().allocation {
                    return Ok(kind.into());
                }
                let source = Source::Ram(Arc::downgrade(store));
                let surveyor = Surveyor::new(source, EventFd::new()?);
                return Ok(Channel::surveyed(kind, surveyor));
            }
            Backing::File(file) => {
                let slice = self.has_timing().then_some(slice);
                let channel = file.channel(depth, claimant()?, slice)?;
                let wake = channel.wake().clone();
                let kind = Kind::File(Box::new(channel));
                if !self.traits().allocation {
                    return Ok(kind.into());
                }
                let source = Source::File(Arc::downgrade(file));
                return Ok(Channel::surveyed(kind, Surveyor::new(source, wake)));
            }
            Backing::Drive(drive) => Kind::Drive(Box::new(drive.channel(depth, claimant()?)?)),
            Backing::KeyValue(medium) => {
                let channel = medium.channel((depth, slice), claimant)?;
                Kind::KeyValue(Box::new(channel))
            }
        };
        Ok(kind.into())
    }
}
