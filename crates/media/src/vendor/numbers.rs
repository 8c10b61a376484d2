//! State of vendor commands, in memory that outlives the process: numbers, each with a key. Where
//! another process takes the place of a server's, it continues with them.
//!
//! A number changes by one store. A number that is added or removed becomes so by one store, too.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use memory::{Area, StateFile, ordered};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most numbers of a medium.
const MAX_NUMBERS: usize = 4096;
/// Version of the entries.
const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    /// 1 while there is a number.
    is_used: u64,
    key: u64,
    number: u64,
    reserved: u64,
}

/// A new file for numbers.
pub(super) fn create() -> io::Result<Arc<StateFile>> {
    let len = 64 + MAX_NUMBERS * size_of::<Entry>();
    StateFile::create("vendor commands", VERSION, &[len])
}

/// The numbers of a medium.
#[derive(Debug)]
pub(super) struct Numbers {
    area: Area<u64, Entry>,
    places: BTreeMap<u64, usize>,
}

impl Numbers {
    /// Those of a file, which is new or was a former process's.
    ///
    /// # Errors
    /// It is no file of numbers, or in use.
    pub(super) fn of(file: &Arc<StateFile>) -> io::Result<Self> {
        if file.format_version() != VERSION {
            return Err(io::Error::other(format!(
                "numbers of version {}; this program reads version {VERSION}",
                file.format_version()
            )));
        }
        let mut area: Area<u64, Entry> = file.adopt(0, MAX_NUMBERS).map_err(io::Error::other)?;
        let (_, entries) = area.parts();
        let used = entries.iter().enumerate().filter(|(_, it)| it.is_used == 1);
        let places = used.map(|(at, entry)| (entry.key, at)).collect();
        Ok(Numbers { area, places })
    }

    /// The number of a key, at first 0. `None`: there are [`MAX_NUMBERS`] others.
    pub(super) fn get(&mut self, key: u64) -> Option<&mut u64> {
        let (_, entries) = self.area.parts();
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None => {
                let at = entries.iter().position(|entry| entry.is_used != 1)?;
                let entry = &mut entries[at];
                (entry.key, entry.number) = (key, 0);
                ordered();
                entry.is_used = 1;
                self.places.insert(key, at);
                at
            }
        };
        Some(&mut entries[at].number)
    }

    /// Removes the number of a key.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some(at) = self.places.remove(&key) {
            self.area.parts().1[at].is_used = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(file: &Arc<StateFile>) -> Arc<StateFile> {
        StateFile::open(file.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn another_process_has_the_numbers_that_are_there() {
        let file = create().unwrap();
        let mut numbers = Numbers::of(&file).unwrap();
        for key in 0..MAX_NUMBERS as u64 {
            *numbers.get(key).unwrap() += key + 1;
        }
        assert_eq!(numbers.get(9999), None);
        numbers.remove(7);
        assert_eq!(numbers.get(9999), Some(&mut 0));
        let mut next = Numbers::of(&again(&file)).unwrap();
        assert_eq!(next.get(7), None, "it is full");
        assert_eq!(next.get(8), Some(&mut 9));
        next.remove(9999);
        assert_eq!(
            next.get(7),
            Some(&mut 0),
            "one that was removed begins again"
        );
    }

    #[test]
    fn numbers_have_one_owner_and_one_version() {
        let file = create().unwrap();
        let numbers = Numbers::of(&file).unwrap();
        assert!(Numbers::of(&file).is_err());
        drop(numbers);
        Numbers::of(&file).unwrap();
        let newer = StateFile::create("newer", VERSION + 1, &[1 << 20]).unwrap();
        let error = Numbers::of(&newer).unwrap_err().to_string();
        assert!(error.contains("this program reads version 1"), "{error}");
    }
}
