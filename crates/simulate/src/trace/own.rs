//! Lines of our trace format: parsing and writing.

use std::io::{self, Write};

use model::{KvKind, KvOp, key_hash};

use super::{Arrival, QUEUES_MAX};
use crate::job::{Kind, Op};

/// Bytes of the longest key.
const KEY_MAX: usize = 255;
/// Maximum number of parts of a compound command.
const PARTS_MAX: usize = media::scripted::PARTS_MAX;

/// The operations with their names; version 1 has only the first six.
const NAMES: [(&str, Kind); 16] = [
    ("R", Kind::Read),
    ("W", Kind::Write),
    ("WF", Kind::Write),
    ("D", Kind::Trim),
    ("F", Kind::Flush),
    ("Z", Kind::Reset),
    ("ZF", Kind::Finish),
    ("ZO", Kind::Open),
    ("ZC", Kind::Close),
    ("KS", Kind::Store),
    ("KA", Kind::Append),
    ("KR", Kind::Retrieve),
    ("KD", Kind::Delete),
    ("KE", Kind::Exist),
    ("KL", Kind::List),
    ("KC", Kind::Compound),
];
const OF_VERSION_1: usize = 6;
/// Name of a FUA write.
const FUA: &str = "WF";

/// Parses a line, with its completion time if present. Appends the parts of compound commands to
/// the existing ones.
pub(super) fn line(
    text: &str,
    version: u8,
    compounds: &mut Vec<Vec<KvOp>>,
) -> Result<(Arrival, Option<u64>), String> {
    let mut words = text.split_whitespace();
    let at = number("time", words.next())?;
    let name = words.next().unwrap_or_default();
    let (kind, fua) = operation(name, version)?;
    let place = words.next().ok_or_else(|| missing("place"))?;
    let len = number("length", words.next())?;
    let offset = match kind {
        Kind::Compound => {
            let parts = parts(place)?;
            let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
            if bytes != len {
                return Err(format!("the parts have {bytes} bytes in all, not {len}"));
            }
            compounds.push(parts);
            compounds.len() as u64 - 1
        }
        kind if kind.is_of_keys() => {
            u32::try_from(len).map_err(|_| format!("a value of {len} bytes cannot be"))?;
            hash(place, kind == Kind::List)?.into()
        }
        _ => number("offset", Some(place))?,
    };
    let queue = match words.next() {
        Some(word) => number("queue", Some(word))?,
        None => 0,
    };
    if queue >= QUEUES_MAX.into() {
        return Err(format!(
            "queue {queue}: there are {QUEUES_MAX}, counted from 0"
        ));
    }
    let due = words.next().map(|word| number("due time", Some(word)));
    let due = due.transpose()?;
    if let Some(more) = words.next() {
        return Err(format!("`{more}` stands behind what belongs there"));
    }
    let op = Op {
        kind,
        offset,
        len,
        fua,
    };
    let queue = queue as u16;
    Ok((Arrival { at, op, queue }, due))
}

fn missing(what: &str) -> String {
    format!("there is no {what}: write TIME OP PLACE LEN [QUEUE]")
}

fn number(what: &str, word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or_else(|| missing(what))?;
    word.parse()
        .map_err(|_| format!("the {what} `{word}` is no whole number"))
}

fn operation(name: &str, version: u8) -> Result<(Kind, bool), String> {
    let known = match version {
        1 => &NAMES[..OF_VERSION_1],
        _ => &NAMES[..],
    };
    let found = known.iter().find(|(other, _)| *other == name);
    let (name, kind) = found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        format!(
            "`{name}` is no operation of version {version}: write one of {}",
            names.join(", ")
        )
    })?;
    Ok((*kind, *name == FUA))
}

/// A key, as hexadecimal digits or as `#` and its hash; only list commands have none.
fn hash(word: &str, may_be_none: bool) -> Result<u32, String> {
    let wrong = || {
        format!(
            "`{word}` is no key: write its bytes, 1 to {KEY_MAX}, in hexadecimal digits, or # and its hash"
        )
    };
    if word == "-" && may_be_none {
        return Ok(0);
    }
    if !word.is_ascii() {
        return Err(wrong());
    }
    if let Some(hash) = word.strip_prefix('#') {
        return u32::from_str_radix(hash, 16).map_err(|_| wrong());
    }
    if word.is_empty() || !word.len().is_multiple_of(2) || word.len() > 2 * KEY_MAX {
        return Err(wrong());
    }
    let bytes = (0..word.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&word[at..at + 2], 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| wrong())?;
    Ok(key_hash(&bytes))
}

/// `KS:KEY:LEN,KD:KEY:0`.
fn parts(word: &str) -> Result<Vec<KvOp>, String> {
    let part = |part: &str| {
        let wrong = || format!("`{part}` is no part of a compound command: write KS:KEY:LEN");
        let fields: Vec<&str> = part.split(':').collect();
        let &[name, key, len] = fields.as_slice() else {
            return Err(wrong());
        };
        let (kind, _) = operation(name, super::VERSION).map_err(|_| wrong())?;
        Ok(KvOp {
            kind: kind.of_model().ok_or_else(wrong)?,
            hash: hash(key, false)?,
            len: len.parse().map_err(|_| wrong())?,
        })
    };
    let parts: Vec<KvOp> = word.split(',').map(part).collect::<Result<_, _>>()?;
    match parts.len() {
        1..=PARTS_MAX => Ok(parts),
        count => Err(format!(
            "a compound command of {count} parts: there are {PARTS_MAX} at most"
        )),
    }
}

fn name(kind: Kind, fua: bool) -> &'static str {
    if fua {
        return FUA;
    }
    let found = NAMES.iter().find(|(_, other)| *other == kind);
    found.map_or("", |(name, _)| name)
}

/// Writes a line, with the completion time if known. Its compound command is one of `compounds`.
///
/// # Errors
/// Those of `out`.
pub(crate) fn put(
    out: &mut impl Write,
    Arrival { at, op, queue }: &Arrival,
    compounds: &[Vec<KvOp>],
    due: Option<u64>,
) -> io::Result<()> {
    write!(out, "{at} {} ", name(op.kind, op.fua))?;
    match op.kind {
        Kind::Compound => {
            let parts = compounds.get(op.offset as usize).into_iter().flatten();
            for (number, part) in parts.enumerate() {
                let comma = if number == 0 { "" } else { "," };
                let name = name(Kind::of_key(part.kind), false);
                write!(out, "{comma}{name}:#{:08x}:{}", part.hash, part.len)?;
            }
        }
        Kind::List => write!(out, "-")?,
        kind if kind.is_of_keys() => write!(out, "#{:08x}", op.offset)?,
        _ => write!(out, "{}", op.offset)?,
    }
    write!(out, " {}", op.len)?;
    match (due, queue) {
        (Some(due), queue) => writeln!(out, " {queue} {due}"),
        (None, 0) => writeln!(out),
        (None, queue) => writeln!(out, " {queue}"),
    }
}

impl Kind {
    /// The kind for a key-value operation.
    pub(crate) fn of_key(kind: KvKind) -> Self {
        match kind {
            KvKind::Store => Kind::Store,
            KvKind::Append => Kind::Append,
            KvKind::Retrieve => Kind::Retrieve,
            KvKind::Delete => Kind::Delete,
            KvKind::Exist => Kind::Exist,
            KvKind::List => Kind::List,
        }
    }

    /// The timing model's kind, if it is a single key-value operation.
    pub(crate) fn of_model(self) -> Option<KvKind> {
        Some(match self {
            Kind::Store => KvKind::Store,
            Kind::Append => KvKind::Append,
            Kind::Retrieve => KvKind::Retrieve,
            Kind::Delete => KvKind::Delete,
            Kind::Exist => KvKind::Exist,
            Kind::List => KvKind::List,
            _ => return None,
        })
    }
}
