//! What a drive is like when it is at rest, as bytes: where its pages lie, and how worn it is. What is under way is not part of it.
//!
//! The form, in little-endian numbers, everything of 8 bytes but where said: `nvmirage` in ASCII, the version (1), seven numbers of the shape; then for each partition credits,
//! `refill`, pages placed, pages of hosts, pages collected, lines erased, and of both writers the open line and the pages taken of it (all ones and 0 for none); for each line its erases and
//! what was placed when it was filled; the number of full lines and these from the one that was filled first, 4 bytes each; the number of free lines and these from the one that has been free for
//! longest, likewise; and for each logical page its place as the complement of 4 bytes, 0 for none. Last a checksum: FNV-1a of 64 bits over words of 4 bytes.
//!
//! Whatever the bytes are, reading them ends in a drive that works or in an error.

use super::ftl::{Ftl, Saved};
use super::lines::SavedLines;
use super::{Flash, Geometry};
use crate::error::ParameterError;
use crate::parameters::FlashParameters;

const MAGIC: u64 = u64::from_le_bytes(*b"nvmirage");
const VERSION: u64 = 1;
const NO_LINE: u64 = u64::MAX;

/// Why bytes are not the state of a drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The drive itself cannot be made.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// They begin with something else.
    #[error(
        "this is no state of a timing model: name another file, or leave it out to begin with a fresh drive"
    )]
    Unknown,
    /// Another program wrote them.
    #[error(
        "this state has version {found} and this program reads version {VERSION}: use the program that wrote it, or begin with a fresh drive"
    )]
    Version {
        /// What they say.
        found: u64,
    },
    /// They are of a drive of another shape.
    #[error(
        "this state is of another drive ({name} is {found}, here {here}): give the parameters that it was written with, or begin with a fresh drive"
    )]
    Shape {
        /// What differs.
        name: &'static str,
        /// What they say.
        found: u64,
        /// What the parameters say.
        here: u64,
    },
    /// They were changed, or cut off.
    #[error("this state is damaged ({what}): take an older one, or begin with a fresh drive")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
}

fn damaged<T>(what: &'static str) -> Result<T, StateError> {
    Err(StateError::Damaged { what })
}

/// The numbers of a shape that the rest depends on.
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
    /// Appends the state of the drive to `out`.
    pub fn save(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put(out, MAGIC);
        put(out, VERSION);
        shape(&self.geometry)
            .iter()
            .for_each(|&(_, number)| put(out, number));
        for partition in &self.partitions {
            write(&partition.ftl, out);
        }
        let sum = checksum(&out[start..]);
        put(out, sum);
    }

    /// A drive at rest in the state that [`Flash::save`] wrote.
    ///
    /// # Errors
    ///
    /// Those of [`Flash::new`]; bytes that are no state, of another version or shape, or damaged.
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
        for partition in &mut flash.partitions {
            read(&mut partition.ftl, &mut from)?;
        }
        match from.bytes.len() {
            8 => Ok(flash),
            _ => damaged("it is longer than it should be"),
        }
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_short(out: &mut Vec<u8>, number: u32) {
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

    /// Numbers of lines, with their count before them.
    fn lines(&mut self, lines: u32) -> Result<Vec<u32>, StateError> {
        let count = self.number()?;
        if count > u64::from(lines) {
            return damaged("it has too many lines");
        }
        (0..count).map(|_| self.short()).collect()
    }
}

fn write(ftl: &Ftl, out: &mut Vec<u8>) {
    let saved = ftl.saved();
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
    let places = 0..ftl.geometry.logical;
    places.for_each(|logical| put_short(out, ftl.lookup(logical).map_or(0, |place| !place)));
}

fn read(ftl: &mut Ftl, from: &mut Reader<'_>) -> Result<(), StateError> {
    let shape = ftl.geometry;
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

/// Every line is free, full or open, and full lines were filled one after another.
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

/// There is the space that credits promise, and two lines: then a free line is never missing.
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
