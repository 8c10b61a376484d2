//! Pairs with the log of their changes, if they persist.
//!
//! Invariants:
//! - Every change of the pairs goes through [`LoggedPairs`], which appends it to the log.
//! - A value whose bytes come later ([`Source::comes_later`]) is logged by the code that copies it.
//!
//! Not included: room in the log, which the caller has checked before the change.

use std::io;

use super::data::Source;
use super::log::Log;
use super::pairs::{Pairs, Refusal, Rule};

/// All pairs of a medium, and the log that receives each change.
#[derive(Debug)]
pub(super) struct LoggedPairs {
    pairs: Pairs,
    log: Option<Box<Log>>,
}

impl LoggedPairs {
    /// Creates room for `bytes` bytes and `keys` keys, without a log.
    ///
    /// # Errors
    /// Those of [`Pairs::new`].
    pub(super) fn new(bytes: u64, keys: u32) -> io::Result<Self> {
        let pairs = Pairs::new(bytes, keys)?;
        Ok(LoggedPairs { pairs, log: None })
    }

    /// Sets the log that receives each change.
    pub(super) fn set_log(&mut self, log: Log) {
        self.log = Some(Box::new(log));
    }

    /// The pairs, for reading.
    pub(super) fn read(&self) -> &Pairs {
        &self.pairs
    }

    /// Whether no death of the process may lose a change that has completed.
    pub(super) fn outlives(&self) -> bool {
        self.log().is_some_and(|log| log.numbers().is_some())
    }

    /// The log, if there is one.
    pub(super) fn log(&self) -> Option<&Log> {
        self.log.as_deref()
    }

    /// The log, if there is one, for changes.
    pub(super) fn log_mut(&mut self) -> Option<&mut Log> {
        self.log.as_deref_mut()
    }

    /// The pairs, together with the log for changes.
    pub(super) fn with_log(&mut self) -> (&Pairs, Option<&mut Log>) {
        (&self.pairs, self.log.as_deref_mut())
    }

    /// Calls `appends` with the log, if there is one, and the pairs.
    pub(super) fn record(&mut self, appends: impl FnOnce(&mut Log, &Pairs)) {
        if let Some(log) = &mut self.log {
            appends(log, &self.pairs);
        }
    }

    /// See [`Pairs::store`].
    ///
    /// # Errors
    /// Those of [`Pairs::store`].
    pub(super) fn store(
        &mut self,
        key: &[u8],
        rule: Rule,
        len: u32,
        value: &mut impl Source,
    ) -> Result<(), Refusal> {
        let slot = self.pairs.store(key, rule, len, value)?;
        if !value.comes_later() {
            self.record(|log, pairs| log.stored(pairs, key, slot));
        }
        Ok(())
    }

    /// See [`Pairs::append`]. Returns the size of the value.
    ///
    /// # Errors
    /// Those of [`Pairs::append`].
    pub(super) fn append(
        &mut self,
        key: &[u8],
        rule: Rule,
        len: u32,
        value: &mut impl Source,
    ) -> Result<u32, Refusal> {
        let (slot, all) = self.pairs.append(key, rule, len, value)?;
        if !value.comes_later() {
            self.record(|log, pairs| {
                if all == len {
                    log.stored(pairs, key, slot);
                } else {
                    log.appended(pairs, key, slot, len);
                }
            });
        }
        Ok(all)
    }

    /// See [`Pairs::delete`].
    ///
    /// # Errors
    /// Those of [`Pairs::delete`].
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        self.pairs.delete(key)?;
        self.record(|log, _| log.deleted(key));
        Ok(())
    }

    /// Deletes everything.
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.record(|log, _| log.cleared());
    }
}
