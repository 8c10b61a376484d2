//! Content of a block: its place, and the write that it is from, so that data from another place,
//! from a previous write, or from two writes at once is seen.

/// Where a block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the namespace, as the ledger counts.
    pub space: u16,
    /// Logical block.
    pub lba: u64,
}

/// Content found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeroes.
    Zeroes,
    /// The block of that write.
    Write(u64),
    /// The block of that write to another place.
    Copy(Place, u64),
    /// Neither: this word at this position is the first that is wrong, by what the first two say.
    Wrong {
        /// Position of the word.
        at: usize,
        /// The word.
        word: u64,
        /// Namespace and block that the first word names.
        place: u64,
        /// The write that the second word names.
        write: u64,
    },
}

impl Place {
    fn word(self) -> u64 {
        1 << 63 | u64::from(self.space) << 40 | self.lba
    }

    fn of(word: u64) -> Option<Place> {
        let place = Place {
            space: (word >> 40) as u16,
            lba: word & ((1 << 40) - 1),
        };
        (place.word() == word).then_some(place)
    }
}

#[inline]
fn salt(place: u64, write: u64) -> u64 {
    (place ^ write.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills a block.
#[inline]
pub fn fill(block: &mut [u8], place: Place, write: u64) {
    let place = place.word();
    let salt = salt(place, write);
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&salt.wrapping_add(at as u64).to_le_bytes());
    }
    block[..8].copy_from_slice(&place.to_le_bytes());
    block[8..16].copy_from_slice(&write.to_le_bytes());
}

#[inline]
fn word_of(block: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&block[8 * at..8 * at + 8]);
    u64::from_le_bytes(word)
}

/// Content of a block that was read from `place`.
#[inline]
#[must_use]
pub fn look(block: &[u8], place: Place) -> Found {
    let (first, write) = (word_of(block, 0), word_of(block, 1));
    let its = Place::of(first);
    if its.is_some() {
        let salt = salt(first, write);
        let wrong = |at: usize| word_of(block, at) ^ salt.wrapping_add(at as u64);
        if (2..block.len() / 8).fold(0, |any, at| any | wrong(at)) == 0 {
            return match its {
                Some(its) if its != place => Found::Copy(its, write),
                _ => Found::Write(write),
            };
        }
    } else if block.iter().fold(0, |any, byte| any | byte) == 0 {
        return Found::Zeroes;
    }
    let salt = salt(first, write);
    let differs = |at: &usize| word_of(block, *at) != salt.wrapping_add(*at as u64);
    let at = if its.is_some() {
        (2..block.len() / 8).find(differs).unwrap_or(0)
    } else {
        0
    };
    Found::Wrong {
        at,
        word: word_of(block, at),
        place: first,
        write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { space: 3, lba: 77 };

    #[test]
    fn a_block_is_known_by_its_place_and_write() {
        let mut block = [0; 512];
        assert_eq!(look(&block, PLACE), Found::Zeroes);
        fill(&mut block, PLACE, 12);
        assert_eq!(look(&block, PLACE), Found::Write(12));
        let elsewhere = Place { lba: 78, ..PLACE };
        assert_eq!(look(&block, elsewhere), Found::Copy(PLACE, 12));
        block[511] ^= 1;
        let wrong = look(&block, elsewhere);
        assert!(matches!(wrong, Found::Wrong { at: 63, .. }));
    }

    #[test]
    fn half_of_another_write_shows() {
        let (mut one, mut other) = ([0; 4096], [0; 4096]);
        fill(&mut one, PLACE, 1);
        fill(&mut other, PLACE, 2);
        one[1024..].copy_from_slice(&other[1024..]);
        assert!(matches!(look(&one, PLACE), Found::Wrong { at: 128, .. }));
        one[..].fill(0);
        one[4095] = 1;
        assert!(matches!(look(&one, PLACE), Found::Wrong { at: 0, .. }));
    }
}
