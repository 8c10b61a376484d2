//! Random lists, most of them nearly right, against what the specification says of each descriptor
//! and each byte.

use std::collections::BTreeSet;

use memory::{Access, Iova, Need};
use nvme_spec::Status;
use port::testing::{Host, PAGE};
use proptest::prelude::*;

use super::{
    BIT_BUCKET, DATA_BLOCK, DATA_TRANSFER_ERROR, DESCRIPTORS, INVALID_NUMBER, INVALID_SEGMENT,
    LAST_SEGMENT, LENGTH_INVALID, PIECES, Piece, Raw, SEGMENT, TYPE_INVALID, raw, walked,
};

const PAGES: u64 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absent,
    NoDescriptor,
    ReadOnly,
    Both,
}

/// Where one byte of the command is: an address, or nowhere.
type Place = Option<u64>;

struct Oracle<'h> {
    host: &'h Host,
    kinds: &'h [Kind],
    /// By page: a region begins there.
    begins: &'h [bool],
    need: Need,
    left: u64,
    places: Vec<Place>,
    pieces: u32,
    descriptors: u32,
    errors: BTreeSet<u16>,
}

impl Oracle<'_> {
    fn error(&mut self, status: Status) {
        self.errors.insert(status.0);
    }

    fn reachable(&self, address: u64, need: Need) -> bool {
        let kind = address
            .checked_sub(Host::BASE)
            .and_then(|at| self.kinds.get((at / PAGE) as usize));
        match kind {
            Some(Kind::Both) => true,
            Some(Kind::ReadOnly) => need == Need::DeviceReads,
            _ => false,
        }
    }

    fn byte(&mut self, place: Place, starts_piece: bool) {
        let begins = place.is_some_and(|at| {
            let page = at.wrapping_sub(Host::BASE) / PAGE;
            at % PAGE == 0 && self.begins.get(page as usize) == Some(&true)
        });
        let follows = match (self.places.last(), place) {
            (Some(Some(last)), Some(at)) => last.checked_add(1) == Some(at),
            (Some(None), None) => true,
            _ => false,
        };
        if starts_piece || begins || !follows {
            self.pieces += 1;
        }
        if place.is_some_and(|at| !self.reachable(at, self.need)) {
            self.error(DATA_TRANSFER_ERROR);
        }
        self.places.push(place);
        self.left -= 1;
    }

    /// One descriptor at its place in a segment: where the list goes on, or that it is wrong (an
    /// error is noted).
    fn descriptor(&mut self, raw: Raw, ends: bool, in_last: bool) -> Result<Option<Raw>, ()> {
        let address = u64::from_le_bytes(raw[..8].try_into().unwrap());
        let length = u32::from_le_bytes(raw[8..12].try_into().unwrap());
        let identifier = raw[15];
        let behind = u128::from(address) + u128::from(length);
        let is_segment = matches!(identifier, SEGMENT | LAST_SEGMENT);
        let is_known = is_segment || matches!(identifier, DATA_BLOCK | BIT_BUCKET);
        let wrong = if !is_known {
            Some(TYPE_INVALID)
        } else if is_segment && (address % 8 != 0 || length == 0 || length % 16 != 0) {
            Some(INVALID_SEGMENT)
        } else if identifier != BIT_BUCKET && behind > 1 << 64 {
            Some(LENGTH_INVALID)
        } else if is_segment && !ends {
            Some(INVALID_NUMBER)
        } else if is_segment && in_last {
            Some(INVALID_SEGMENT)
        } else {
            None
        };
        if let Some(status) = wrong {
            self.error(status);
            return Err(());
        }
        if is_segment {
            return Ok(Some(raw));
        }
        if identifier == BIT_BUCKET && self.need == Need::DeviceReads {
            return Ok(None);
        }
        for n in 0..u64::from(length) {
            if self.left == 0 {
                break;
            }
            match identifier {
                BIT_BUCKET => self.byte(None, n % 65_536 == 0),
                _ => self.byte(Some(address + n), false),
            }
        }
        Ok(None)
    }

    fn list(&mut self, sgl1: Raw) -> Result<(), ()> {
        let mut next = self.descriptor(sgl1, true, false)?;
        while let Some(segment) = next.take() {
            let start = u64::from_le_bytes(segment[..8].try_into().unwrap());
            let length = u32::from_le_bytes(segment[8..12].try_into().unwrap());
            let count = length / 16;
            self.descriptors += count;
            if self.descriptors > DESCRIPTORS {
                self.error(INVALID_NUMBER);
                return Err(());
            }
            // A segment may be read as a whole: what is wrong in it stands beside its not being
            // there.
            let bytes = 0..u64::from(length);
            let mut addresses = bytes.map(|n| start + n);
            if !addresses.all(|byte| self.reachable(byte, Need::DeviceReads)) {
                self.error(DATA_TRANSFER_ERROR);
            }
            for n in 0..count {
                let at = start + 16 * u64::from(n);
                if !(at..=at + 15).all(|byte| self.reachable(byte, Need::DeviceReads)) {
                    return Err(());
                }
                let raw = self.host.read(Iova(at), 16).try_into().unwrap();
                let ends = n + 1 == count;
                next = self.descriptor(raw, ends, segment[15] == LAST_SEGMENT)?;
            }
        }
        Ok(())
    }

    fn walk(&mut self, sgl1: Raw) {
        if self.list(sgl1).is_ok() && self.left > 0 {
            self.error(LENGTH_INVALID);
        }
        if self.pieces > PIECES {
            self.error(INVALID_NUMBER);
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        40 => Just(Kind::Both),
        2 => Just(Kind::ReadOnly),
        1 => Just(Kind::NoDescriptor),
        1 => Just(Kind::Absent),
    ]
}

/// An address in the memory.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..PAGES * PAGE,
        1 => (1..PAGES, 0u64..40).prop_map(|(page, n)| page * PAGE - n),
    ]
    .prop_map(|at| Host::BASE + at)
}

/// Descriptors of data, or of the lack of it.
fn block() -> impl Strategy<Value = Raw> {
    let length = || prop_oneof![3 => 0u32..6, 3 => 0u32..700, 1 => 4000u32..9000];
    prop_oneof![
        6 => (address(), length()).prop_map(|(at, length)| raw(DATA_BLOCK, at, length)),
        // Blocks that follow each other.
        2 => (0u64..8).prop_map(|n| raw(DATA_BLOCK, Host::BASE + 4000 + 50 * n, 50)),
        1 => (any::<u64>(), length()).prop_map(|(at, length)| raw(BIT_BUCKET, at, length)),
    ]
}

/// Anything: mostly not quite right.
fn odd() -> impl Strategy<Value = Raw> {
    let identifier = prop_oneof![
        Just(DATA_BLOCK),
        Just(BIT_BUCKET),
        Just(SEGMENT),
        Just(LAST_SEGMENT),
        any::<u8>(),
    ];
    let at = prop_oneof![
        2 => address(),
        2 => address().prop_map(|at| at & !7),
        1 => any::<u64>(),
        1 => (0u64..64).prop_map(|n| u64::MAX - n),
    ];
    let length = prop_oneof![
        4 => (0u32..20).prop_map(|n| 16 * n),
        1 => 0u32..100,
        1 => any::<u32>(),
        1 => (1000u32..1100).prop_map(|n| 16 * n),
    ];
    (identifier, at, length).prop_map(|(identifier, at, length)| raw(identifier, at, length))
}

/// Segments with their addresses: each but the last gets a descriptor that leads to the next.
fn segments() -> impl Strategy<Value = Vec<(u64, Vec<Raw>)>> {
    let one = (
        address().prop_map(|at| at & !7),
        prop::collection::vec(block(), 1..90),
    );
    prop::collection::vec(one, 0..4)
}

/// How long the command is beside what the list describes.
#[derive(Clone, Copy, Debug)]
enum Length {
    Exact,
    Less(u32),
    More(u32),
    Any(u32),
}

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![
        4 => Just(Length::Exact),
        2 => (1u32..5000).prop_map(Length::Less),
        1 => (1u32..50).prop_map(Length::More),
        1 => (1u32..0x8000).prop_map(Length::Any),
    ]
}

/// Writes the segments, each with the descriptor of the next one behind it, and gives that of the
/// first.
fn lay_out(host: &Host, segments: &[(u64, Vec<Raw>)], announced: bool) -> Option<Raw> {
    let mut next: Option<Raw> = None;
    for (at, blocks) in segments.iter().rev() {
        let identifier = match next {
            None if announced => LAST_SEGMENT,
            _ => SEGMENT,
        };
        let all: Vec<Raw> = blocks.iter().copied().chain(next).collect();
        let room = (Host::BASE + PAGES * PAGE).saturating_sub(*at) as usize;
        let bytes = all.as_flattened();
        host.write(Iova(*at), &bytes[..bytes.len().min(room)]);
        next = Some(raw(identifier, *at, bytes.len() as u32));
    }
    next
}

/// Maps pages by `kinds`; pages of one kind that `joined` joins are one region. Where regions begin
/// comes back.
fn map(host: &mut Host, kinds: &[Kind], joined: u32) -> Vec<bool> {
    let mut begins = vec![false; kinds.len()];
    let mut first = 0;
    while first < kinds.len() {
        let mut end = first + 1;
        while end < kinds.len() && kinds[end] == kinds[first] && joined >> end & 1 == 1 {
            end += 1;
        }
        let (start, count) = (first as u64, (end - first) as u64);
        match kinds[first] {
            Kind::Absent => {}
            Kind::NoDescriptor => host.map_without_descriptor(start, count),
            kind => {
                let access = Access {
                    read: true,
                    write: kind == Kind::Both,
                };
                host.map_as(start, count, access);
            }
        }
        begins[first] = true;
        first = end;
    }
    begins
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_is_what_the_specification_says(
        kinds in prop::collection::vec(kind(), PAGES as usize),
        joined in any::<u32>(),
        segments in segments(),
        alone in prop_oneof![2 => block(), 1 => odd()],
        announced in prop::bool::weighted(0.9),
        oddities in prop_oneof![
            2 => Just(Vec::new()),
            1 => prop::collection::vec((any::<prop::sample::Index>(), 0..90usize, odd()), 1..3),
        ],
        length in length(),
        writes in any::<bool>(),
    ) {
        let mut host = Host::unmapped(PAGES);
        let begins = map(&mut host, &kinds, joined);
        let sgl1 = lay_out(&host, &segments, announced).unwrap_or(alone);
        for (which, at, odd) in &oddities {
            if !segments.is_empty() {
                let (start, blocks) = which.get(&segments);
                let at = start + 16 * (at % (blocks.len() + 1)) as u64;
                if at + 16 <= Host::BASE + PAGES * PAGE {
                    host.write(Iova(at), odd);
                }
            }
        }
        let need = if writes { Need::DeviceWrites } else { Need::DeviceReads };
        let oracle = |left: u64| {
            let mut oracle = Oracle {
                host: &host, kinds: &kinds, begins: &begins, need, left,
                places: Vec::new(), pieces: 0, descriptors: 0, errors: BTreeSet::new(),
            };
            oracle.walk(sgl1);
            oracle
        };
        let described = oracle(1 << 19).places.len() as u32;
        let len = match length {
            Length::Exact => described,
            Length::Less(n) => described.saturating_sub(n),
            Length::More(n) => described + n,
            Length::Any(n) => n,
        }
        .max(1);
        let expected = oracle(u64::from(len));
        match walked(&host, sgl1, len, need) {
            Ok(pieces) => {
                prop_assert!(expected.errors.is_empty(), "accepted with {:?}", expected.errors);
                prop_assert_eq!(pieces.len() as u32, expected.pieces);
                let places: Vec<Place> = pieces
                    .iter()
                    .flat_map(|piece| match *piece {
                        Piece::Host(at, len) => (0..u64::from(len)).map(|n| Some(at + n)).collect::<Vec<_>>(),
                        Piece::Sink(len) => vec![None; len as usize],
                    })
                    .collect();
                prop_assert!(places == expected.places);
            }
            Err(status) => prop_assert!(
                expected.errors.contains(&status.0),
                "{} where the oracle has {:?}", status, expected.errors
            ),
        }
    }
}
