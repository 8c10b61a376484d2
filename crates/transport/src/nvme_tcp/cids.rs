//! The commands of a queue by their identifier.
//!
//! A host chooses identifiers as it likes (Linux puts a generation into their upper bits), so they
//! are keys, and never an index. An open-addressed table, at most a quarter full.

/// See the module.
#[derive(Debug)]
pub(super) struct Cids {
    /// 0, or the command's number plus 1 in the upper half and its identifier in the lower one.
    places: Box<[u32]>,
    mask: usize,
}

impl Cids {
    /// A table with room for `commands` identifiers.
    pub(super) fn new(commands: usize) -> Self {
        let places = (4 * commands.max(1)).next_power_of_two();
        Self {
            places: vec![0; places].into_boxed_slice(),
            mask: places - 1,
        }
    }

    fn home(&self, cid: u16) -> usize {
        // Fibonacci hashing: identifiers that differ in few bits lie far apart.
        (u32::from(cid).wrapping_mul(0x9e37_79b1) >> 8) as usize & self.mask
    }

    /// The place of an identifier, or the free one where it would be.
    fn find(&self, cid: u16) -> usize {
        let mut at = self.home(cid);
        while self.places[at] != 0 && self.places[at] & 0xffff != u32::from(cid) {
            at = (at + 1) & self.mask;
        }
        at
    }

    /// Adds a command. False where one with its identifier is there.
    pub(super) fn insert(&mut self, cid: u16, index: u16) -> bool {
        let at = self.find(cid);
        if self.places[at] != 0 {
            return false;
        }
        self.places[at] = (u32::from(index) + 1) << 16 | u32::from(cid);
        true
    }

    /// Removes a command.
    pub(super) fn remove(&mut self, cid: u16) {
        let at = self.find(cid);
        if self.places[at] != 0 {
            self.empty(at);
        }
    }

    /// Removes the command with this identifier, if it is to be: its number.
    #[inline]
    pub(super) fn take_if(&mut self, cid: u16, is_to_be: impl FnOnce(u16) -> bool) -> Option<u16> {
        let at = self.find(cid);
        let index = u16::try_from((self.places[at] >> 16).checked_sub(1)?).ok()?;
        if !is_to_be(index) {
            return None;
        }
        self.empty(at);
        Some(index)
    }

    /// Empties a place, and moves those behind it that would not be found any more.
    #[inline]
    fn empty(&mut self, mut hole: usize) {
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let place = self.places[at];
            if place == 0 {
                break;
            }
            let home = self.home((place & 0xffff) as u16);
            // Its home does not lie behind the hole: it is found only through it.
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(hole) & self.mask {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut cids = Cids::new(8);
        let mut model: BTreeMap<u16, u16> = BTreeMap::new();
        let mut state = 1u64;
        for step in 0..20_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(step);
            // Few identifiers, so that they meet; some differ only in their upper bits.
            let cid = ((state >> 33) % 24 * 0x0fff) as u16;
            if model.len() < 8 && state >> 62 != 0 {
                let index = (step % 8) as u16;
                let new = !model.contains_key(&cid);
                assert_eq!(cids.insert(cid, index), new);
                model.entry(cid).or_insert(index);
            } else {
                match step % 3 {
                    0 => cids.remove(cid),
                    1 => assert_eq!(cids.take_if(cid, |_| true), model.get(&cid).copied()),
                    _ => {
                        assert_eq!(cids.take_if(cid, |_| false), None);
                        continue;
                    }
                }
                model.remove(&cid);
            }
            for cid in (0..24u16).map(|n| n.wrapping_mul(0x0fff)) {
                let mut seen = None;
                let keep = |index| {
                    seen = Some(index);
                    false
                };
                assert_eq!(cids.take_if(cid, keep), None);
                assert_eq!(seen, model.get(&cid).copied(), "{cid} in step {step}");
            }
        }
    }
}
