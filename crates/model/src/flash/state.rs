//! State of a drive at rest as bytes: the places of its pages, and its wear. Commands in flight are
//! not part of it.
//!
//! The format, in little-endian numbers of 8 bytes except where noted: `nvmirage` in ASCII, the
//! version (3), seven numbers of the shape; how the drive was preconditioned (0: not at all, 1:
//! simulated, 2: seeded), the write amplification of that in thousandths, its rounds and page
//! operations; then for each partition credits, `refill`, pages placed, pages of hosts, pages
//! collected, lines erased, and for both writers the open line and the pages taken of it (all ones
//! and 0 for none); for each line its erases and the pages placed when it was filled; the number of
//! full lines and these in the order in which they were filled, 4 bytes each; the number of free
//! lines and these from the one free for longest, in the same form; pages that were folded, and the
//! dies of the wordlines in the cache of single-bit cells, in the same form; and for each logical
//! page its place as the complement of 4 bytes, 0 for none. Last a checksum: 64-bit FNV-1a over
//! words of 4 bytes.
//!
//! Reading any bytes results in a working drive or in an error.

use super::ftl::Saved;
use super::lines::SavedLines;
use super::{Flash, Geometry, Method, Partition, Prepared};
use crate::error::ParameterError;
use crate::parameters::FlashParameters;

const MAGIC: u64 = u64::from_le_bytes(*b"nvmirage");
const VERSION: u64 = 3;
const NO_LINE: u64 = u64::MAX;

/// Why bytes are not a valid state of a drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The drive itself is invalid.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The model has no state.
    #[error("only models of kind flash have a state beside the medium's: leave its file out")]
    Stateless,
    /// The bytes do not begin like a state.
    #[error(
        "not a state of a timing model: name another file, or remove it to start with a new drive"
    )]
    Unknown,
    /// Another version of the program wrote them.
    #[error(
        "unsupported state version {found}; this program reads version {VERSION}: use the program that wrote it, or start with a new drive"
    )]
    Version {
        /// Their version.
        found: u64,
    },
    /// They belong to a drive of another shape.
    #[error(
        "this state is from another drive ({name} is {found}, here {here}): use the parameters that it was written with, or start with a new drive"
    )]
    Shape {
        /// The property that differs.
        name: &'static str,
        /// Its value in the bytes.
        found: u64,
        /// Its value in the parameters.
        here: u64,
    },
    /// They were changed or cut off.
    #[error("this state is damaged ({what}): take an older one, or begin with a fresh drive")]
    Damaged {
        /// The damage.
        what: &'static str,
    },
}

fn damaged<T>(what: &'static str) -> Result<T, StateError> {
    Err(StateError::Damaged { what })
}

/// The numbers of a shape that determine the rest.
fn shape(geometry: &Geometry) -> [(&'static str, u64); 7] {
    [
        ("partitions", u64::from(geometry.partitions)),
        ("dies of a partition", u64::from(geometry.dies)),
        ("pages of a line", u64::from(geometry.line)),
        ("lines", u64::from(geometry.lines)),
        ("pages of a partition", u64::from(geometry.logical)),
        ("pages of a wordline", u64::from(geometry.die.wordline)),
        ("pages of a flash page", u64::from(geometry.die.flash_page)),
    ]
}

impl Flash {
    /// A length in bytes that the state of a drive of `size_bytes` never reaches: a line has 24
    /// bytes beside those of its pages, and a page 4.
    #[must_use]
    pub const fn max_state_len(size_bytes: u64) -> u64 {
        (1 << 20) + size_bytes / 64
    }

    /// Appends the state of the drive to `out`.
    pub fn save(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_shape(&self.geometry, self.prepared, out);
        for partition in &self.partitions {
            put_head(partition, out);
            let entries = partition.ftl.place_entries();
            entries.for_each(|entry| put_short(out, entry));
        }
        seal(out, start);
    }

    /// Creates a drive at rest in the state written by [`Flash::save`].
    ///
    /// # Errors
    ///
    /// Those of [`Flash::new`]; bytes that are not a state, are of another version or shape, or are
    /// damaged.
    pub fn restore(parameters: &FlashParameters, bytes: &[u8]) -> Result<Self, StateError> {
        let mut flash = Self::new(parameters)?;
        let mut from = Reader { bytes };
        if from.number().ok() != Some(MAGIC) {
            return Err(StateError::Unknown);
        }
        let version = from.number()?;
        if version != VERSION {
            return Err(StateError::Version { found: version });
        }
        for (name, here) in shape(&flash.geometry) {
            let found = from.number()?;
            if found != here {
                return Err(StateError::Shape { name, found, here });
            }
        }
        let Some((body, sum)) = bytes.split_last_chunk::<8>() else {
            return damaged("it is cut off");
        };
        if checksum(body) != u64::from_le_bytes(*sum) {
            return damaged("its checksum does not match");
        }
        flash.prepared = read_prepared(&mut from)?;
        for partition in &mut flash.partitions {
            read(partition, &mut from)?;
            if flash.slc.is_none() {
                partition.cached.clear();
            }
        }
        match from.bytes.len() {
            8 => Ok(flash),
            _ => damaged("it is longer than it should be"),
        }
    }
}

/// Writes the head of the bytes.
pub(super) fn put_shape(geometry: &Geometry, prepared: Option<Prepared>, out: &mut Vec<u8>) {
    put(out, MAGIC);
    put(out, VERSION);
    shape(geometry)
        .iter()
        .for_each(|&(_, number)| put(out, number));
    put(
        out,
        prepared.map_or(0, |prepared| match prepared.method {
            Method::Played => 1,
            Method::Seeded => 2,
        }),
    );
    let (amplification, rounds, operations) = prepared.map_or((0, 0, 0), |prepared| {
        (
            prepared.write_amplification_permille,
            prepared.rounds,
            prepared.page_operations,
        )
    });
    put(out, amplification);
    put(out, u64::from(rounds));
    put(out, operations);
}

fn read_prepared(from: &mut Reader<'_>) -> Result<Option<Prepared>, StateError> {
    let method = from.number()?;
    let write_amplification_permille = from.number()?;
    let rounds = from.number()?;
    let page_operations = from.number()?;
    let method = match method {
        0 => return Ok(None),
        1 => Method::Played,
        2 => Method::Seeded,
        _ => return damaged("it was prepared in no known way"),
    };
    Ok(Some(Prepared {
        method,
        write_amplification_permille,
        rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
        page_operations,
    }))
}

/// Appends the checksum of the bytes from `start` on.
pub(super) fn seal(out: &mut Vec<u8>, start: usize) {
    let sum = checksum(&out[start..]);
    put(out, sum);
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_short(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words = words
        .iter()
        .map(|word| u64::from(u32::from_le_bytes(*word)));
    let rest = rest.iter().map(|&byte| u64::from(byte));
    words.chain(rest).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3)
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, StateError> {
        let Some((first, rest)) = self.bytes.split_first_chunk::<8>() else {
            return damaged("it is cut off");
        };
        self.bytes = rest;
        Ok(u64::from_le_bytes(*first))
    }

    fn short(&mut self) -> Result<u32, StateError> {
        let Some((first, rest)) = self.bytes.split_first_chunk::<4>() else {
            return damaged("it is cut off");
        };
        self.bytes = rest;
        Ok(u32::from_le_bytes(*first))
    }

    /// Reads numbers of lines, preceded by their count.
    fn lines(&mut self, lines: u32) -> Result<Vec<u32>, StateError> {
        let count = self.number()?;
        if count > u64::from(lines) {
            return damaged("it has too many lines");
        }
        (0..count).map(|_| self.short()).collect()
    }
}

/// State of a partition without its map.
pub(super) fn put_head(partition: &Partition, out: &mut Vec<u8>) {
    let saved = partition.ftl.saved();
    put(out, saved.credits.cast_unsigned());
    put(out, u64::from(saved.refill));
    put(out, saved.lines.placed);
    put(out, saved.host_pages);
    put(out, saved.collected_pages);
    put(out, saved.lines.erased);
    for open in saved.open {
        let (line, taken) = open.map_or((NO_LINE, 0), |(line, taken)| (u64::from(line), taken));
        put(out, line);
        put(out, u64::from(taken));
    }
    for &(erases, filled_at) in &saved.lines.each {
        put(out, u64::from(erases));
        put(out, filled_at);
    }
    for list in [&saved.lines.full, &saved.lines.free] {
        put(out, list.len() as u64);
        list.iter().for_each(|&line| put_short(out, line));
    }
    let cached = &partition.cached;
    put(out, cached.folded_pages);
    put(out, cached.dies.len() as u64);
    let of_partition = cached.dies.iter().map(|die| die - partition.first_die);
    of_partition.for_each(|die| put_short(out, u32::try_from(die).unwrap_or(u32::MAX)));
}

/// Reads the contents of the cache of single-bit cells.
fn read_cached(partition: &mut Partition, from: &mut Reader<'_>) -> Result<(), StateError> {
    let dies = partition.ftl.geometry.dies;
    partition.cached.folded_pages = from.number()?;
    for _ in 0..from.number()? {
        let die = from.short()?;
        if die >= dies {
            return damaged("a wordline is on no die");
        }
        let die = partition.first_die + die as usize;
        partition.cached.dies.push_back(die);
    }
    Ok(())
}

fn read(partition: &mut Partition, from: &mut Reader<'_>) -> Result<(), StateError> {
    let shape = partition.ftl.geometry;
    let credits = from.number()?.cast_signed();
    let refill = from.number()?;
    let placed = from.number()?;
    let host_pages = from.number()?;
    let collected_pages = from.number()?;
    let erased = from.number()?;
    let mut open = [None; 2];
    for open in &mut open {
        let (line, taken) = (from.number()?, from.number()?);
        *open = match (u32::try_from(line), u32::try_from(taken)) {
            _ if line == NO_LINE => None,
            (Ok(line), Ok(taken)) if line < shape.lines && (1..shape.line).contains(&taken) => {
                Some((line, taken))
            }
            _ => return damaged("an open line is none"),
        };
    }
    let mut each = Vec::new();
    for _ in 0..shape.lines {
        let (erases, filled_at) = (from.number()?, from.number()?);
        let Ok(erases) = u32::try_from(erases) else {
            return damaged("a line was erased too often");
        };
        each.push((erases, filled_at));
    }
    let full = from.lines(shape.lines)?;
    let free = from.lines(shape.lines)?;
    let most = u64::MAX / 4; // what is counted on from there does not overflow
    if placed.max(host_pages).max(collected_pages).max(erased) > most {
        return damaged("a count is too high");
    }
    let lines = SavedLines {
        each,
        full,
        free,
        placed,
        erased,
    };
    check_lines(&lines, open, shape.lines)?;
    let saved = Saved {
        lines,
        open,
        credits,
        refill: u32::try_from(refill).unwrap_or(u32::MAX),
        host_pages,
        collected_pages,
    };
    check_space(&saved, &shape)?;
    read_cached(partition, from)?;
    let ftl = &mut partition.ftl;
    ftl.restore(saved);
    for logical in 0..shape.logical {
        let entry = from.short()?;
        if entry != 0 && !ftl.restore_page(logical, !entry) {
            return damaged("a page lies where nothing can lie");
        }
    }
    ftl.restored();
    Ok(())
}

/// Checks that every line is free, full or open, and that full lines were filled one after another.
fn check_lines(
    lines: &SavedLines,
    open: [Option<(u32, u32)>; 2],
    count: u32,
) -> Result<(), StateError> {
    let mut seen = vec![false; count as usize];
    let open = open.iter().flatten().map(|(line, _)| line);
    for &line in lines.full.iter().chain(&lines.free).chain(open) {
        match seen.get_mut(line as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return damaged("a line is there twice, or not at all"),
        }
    }
    if seen.contains(&false) {
        return damaged("a line is missing");
    }
    let filled: Vec<u64> = lines
        .full
        .iter()
        .map(|&line| lines.each[line as usize].1)
        .collect();
    if !filled.is_sorted_by(|a, b| a < b) || filled.last().is_some_and(|&last| last > lines.placed)
    {
        return damaged("lines were not filled in their order");
    }
    Ok(())
}

/// Checks that there is the space that the credits promise, and two lines: then a free line is
/// always available.
fn check_space(saved: &Saved, shape: &Geometry) -> Result<(), StateError> {
    let line = i64::from(shape.line);
    let free = i64::try_from(saved.lines.free.len()).unwrap_or(i64::MAX);
    let open: i64 = saved
        .open
        .iter()
        .flatten()
        .map(|&(_, taken)| line - i64::from(taken))
        .sum();
    let space = free * line + open - 2 * line;
    if saved.refill > shape.line || saved.credits < -line || space < saved.credits.max(0) {
        return damaged("it has less space than it promises");
    }
    Ok(())
}
