//! The checkpoint of a timing model that a holder keeps for the next process of the server.
//!
//! Each checkpoint is a new file in memory, which takes the place of the last one when it is whole:
//! a death while it is written leaves the last one. It has the state, unless the medium has a state
//! file, and ends with a tail that says which of these it is, and when the state was the model's.
//!
//! The tail, in little-endian numbers of 8 bytes: `nvmtimed` in ASCII, the version (1), the place
//! of the state (0: the one that a new drive begins with, 1: before the tail, 2: the state file),
//! the time of CLOCK_MONOTONIC in nanoseconds, the length of the state before it, and a checksum of
//! these five: 64-bit FNV-1a over words of 8 bytes. The state has a format and a checksum of its
//! own (`model`).

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holder::Holder;
use rustix::fs::MemfdFlags;

use super::file::write_sparsely;
use crate::survival;

const MAGIC: u64 = u64::from_le_bytes(*b"nvmtimed");
const VERSION: u64 = 1;
const TAIL: usize = 48;

/// Where the state of a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Nowhere: it is the one that a new drive begins with.
    Initial,
    /// Here.
    State(&'a [u8]),
    /// In the medium's state file.
    InFile,
}

/// A checkpoint of a former process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    bytes: Vec<u8>,
    place: u64,
    /// When the state was the model's: the time of CLOCK_MONOTONIC.
    pub(crate) at: Duration,
}

impl Checkpoint {
    /// Where its state is.
    pub(crate) fn content(&self) -> Content<'_> {
        match self.place {
            0 => Content::Initial,
            1 => Content::State(&self.bytes),
            _ => Content::InFile,
        }
    }

    /// Reads all bytes of a file.
    fn of(mut bytes: Vec<u8>) -> anyhow::Result<Self> {
        let tail = bytes.split_last_chunk::<TAIL>();
        let (state, tail) = tail.context("it is cut off")?;
        let (words, _) = tail.as_chunks::<8>();
        let mut numbers = [0; TAIL / 8];
        for (to, word) in numbers.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*word);
        }
        let [magic, version, place, at, len, sum] = numbers;
        ensure!(magic == MAGIC, "it is no checkpoint");
        ensure!(
            version == VERSION,
            "unsupported version {version}; this program reads version {VERSION}"
        );
        ensure!(
            sum == checksum(&numbers[..5]),
            "its checksum does not match"
        );
        ensure!(
            place <= 2 && len == state.len() as u64,
            "its tail is of another checkpoint"
        );
        let at = Duration::from_nanos(at);
        bytes.truncate(bytes.len() - TAIL);
        Ok(Self { bytes, place, at })
    }
}

fn checksum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0xcbf2_9ce4_8422_2325, |sum, number| {
        (sum ^ number).wrapping_mul(0x0100_0000_01b3)
    })
}

fn tail(place: u64, at: Duration, len: u64) -> [u8; TAIL] {
    let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
    let numbers = [MAGIC, VERSION, place, at, len];
    let mut tail = [0; TAIL];
    let all = numbers.into_iter().chain([checksum(&numbers)]);
    for (to, number) in tail.chunks_mut(8).zip(all) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    tail
}

/// A checkpoint that this process has written.
#[derive(Debug)]
struct Written {
    file: File,
    place: u64,
    /// Length of the state before the tail.
    len: u64,
}

impl Written {
    /// Writes one into a new file in memory.
    fn new(name: &str, content: &Content<'_>, at: Duration) -> io::Result<Self> {
        let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
        let (place, state) = match *content {
            Content::Initial => (0, &[][..]),
            Content::State(state) => (1, state),
            Content::InFile => (2, &[][..]),
        };
        write_sparsely(&mut file, state)?;
        let len = state.len() as u64;
        file.write_all(&tail(place, at, len))?;
        Ok(Self { file, place, len })
    }

    /// Its state is that of a later time, too.
    fn renew(&self, at: Duration) -> io::Result<()> {
        let tail = tail(self.place, at, self.len);
        self.file.write_all_at(&tail, self.len)
    }
}

/// The place of a medium's checkpoint at the holder.
#[derive(Debug)]
pub(crate) struct Kept {
    holder: Arc<Holder>,
    name: String,
    /// The last one of this process.
    last: Option<Written>,
}

impl Kept {
    /// The state of a medium.
    pub(crate) fn new(holder: &Arc<Holder>, medium: &str) -> Self {
        Self {
            holder: holder.clone(),
            name: survival::timing_name(medium),
            last: None,
        }
    }

    /// The checkpoint of a former process; `None` if there is none. `longest` is the length that a
    /// state never reaches.
    ///
    /// # Errors
    /// It is damaged, of another version, or cannot be read.
    pub(crate) fn fetch(&self, longest: u64) -> anyhow::Result<Option<Checkpoint>> {
        let most = longest + TAIL as u64;
        let bytes = self.holder.fetch_bytes(&self.name, most)?;
        bytes.map(Checkpoint::of).transpose()
    }

    /// Has the holder keep a checkpoint in place of the last one.
    ///
    /// # Errors
    /// The system's, or the holder's; it then keeps the last one.
    pub(crate) fn keep(&mut self, content: &Content<'_>, at: Duration) -> anyhow::Result<()> {
        let written = Written::new(&self.name, content, at).context("cannot write it")?;
        self.holder.keep(&self.name, written.file.as_fd())?;
        self.last = Some(written);
        Ok(())
    }

    /// The state of the last checkpoint is still the model's.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn renew(&self, at: Duration) -> anyhow::Result<()> {
        let last = self.last.as_ref();
        Ok(last.map_or(Ok(()), |last| last.renew(at))?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;

    fn read(written: &Written) -> Vec<u8> {
        let mut file = written.file.try_clone().unwrap();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written_and_renewed() {
        let mut state = vec![0; 200_000];
        state[70_000] = 7;
        for content in [Content::Initial, Content::State(&state), Content::InFile] {
            let written = Written::new("timing m", &content, Duration::from_nanos(5)).unwrap();
            for at in [5, 9] {
                written.renew(Duration::from_nanos(at)).unwrap();
                let found = Checkpoint::of(read(&written)).unwrap();
                assert_eq!(found.content(), content);
                assert_eq!(found.at, Duration::from_nanos(at));
            }
        }
    }

    #[test]
    fn a_checkpoint_with_another_length_or_bit_is_refused() {
        let written = Written::new(
            "timing m",
            &Content::State(&[1; 24]),
            Duration::from_secs(1),
        )
        .unwrap();
        let bytes = read(&written);
        for len in 0..bytes.len() {
            assert!(Checkpoint::of(bytes[..len].to_vec()).is_err(), "{len}");
        }
        for bit in 24 * 8..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Checkpoint::of(changed).is_err(), "{bit}");
        }
        let longer = [&[0; 8], &bytes[..]].concat();
        assert!(Checkpoint::of(longer).is_err());
        let mut newer = bytes;
        newer[32..40].copy_from_slice(&2_u64.to_le_bytes());
        let error = Checkpoint::of(newer).unwrap_err().to_string();
        assert!(
            error.contains("version 2; this program reads version 1"),
            "{error}"
        );
    }
}
