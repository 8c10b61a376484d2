//! Copies: how they are made, and what must come of them.

use super::Host;
use super::io::TRANSFER_MAX;
use super::queue::{Command, Kind};
use crate::around::Around;
use crate::ledger::Span;

/// Source ranges at most, and bytes of the entry of each (NVM Command Set 1.1, figure 38).
const RANGES: u64 = 3;
const ENTRY_LEN: usize = 32;

impl Host {
    /// Puts a copy into a queue; false where it does not fit, or there is no memory for it.
    pub(super) fn put_copy(&mut self, at: usize, around: &mut Around<'_>) -> bool {
        if around.ledger.has_many_copies() {
            return false;
        }
        let space = self.random.index(self.spaces.len());
        let to = self.spaces[space];
        let across = self.copies_across && self.random.once_in(2);
        let mut sources = Vec::new();
        for _ in 0..self.random.between(1, RANGES) {
            let other = self.random.index(self.spaces.len());
            let is_alike = self.spaces[other].shift == to.shift;
            let from = if across && is_alike { other } else { space };
            let source = self.choose_span(from, Kind::Read);
            if around.ledger.is_vague(source) {
                let len = (source.count as usize) << to.shift;
                return self.submit(at, (Kind::Read, from), source, len, around);
            }
            sources.push(source);
        }
        let count: u64 = sources.iter().map(|source| u64::from(source.count)).sum();
        if count > to.blocks || count << to.shift > 2 * TRANSFER_MAX {
            return false;
        }
        let span = Span {
            space: to.space,
            lba: self.random.below(to.blocks - count + 1),
            count: count as u32,
        };
        // Between namespaces a copy to its own source is an error.
        if across && sources.iter().any(|source| source.meets(span)) {
            return false;
        }
        let len = ENTRY_LEN * sources.len();
        let kind = Kind::Copy { across };
        self.submit_with(
            (at, len),
            (kind, space),
            (span, Vec::new(), sources),
            Vec::new(),
            around,
        )
    }

    /// The ledger learns of a copy, and its list is made.
    pub(super) fn begin_copy(
        &self,
        command: &mut Command,
        list: &mut Vec<u8>,
        around: &mut Around<'_>,
    ) {
        let ledger = &mut *around.ledger;
        command.mark = ledger.next_write();
        command.reads_since = ledger.begin_copy(command.span, &command.sources, command.mark);
        list.clear();
        for source in &command.sources {
            let mut entry = [0; ENTRY_LEN];
            if command.kind == (Kind::Copy { across: true }) {
                let mut spaces = self.spaces.iter();
                let from = spaces.find(|space| space.space == source.space);
                let nsid = from.expect("a namespace of this host").nsid;
                entry[..4].copy_from_slice(&nsid.to_le_bytes());
            }
            entry[8..16].copy_from_slice(&source.lba.to_le_bytes());
            entry[16..18].copy_from_slice(&(source.count as u16 - 1).to_le_bytes());
            list.extend(entry);
        }
    }
}
