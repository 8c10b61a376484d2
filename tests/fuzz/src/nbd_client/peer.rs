//! A client's side: what it sends, and a reader of what it gets, by the numbers and offsets of the
//! protocol (`doc/proto.md`).

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use arbitrary::Arbitrary;

use super::SIZE;
use super::model::{Id, Model};

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISC: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const CACHE: u16 = 5;
pub(super) const ZERO: u16 = 6;
pub(super) const STATUS: u16 = 7;

/// Flags of requests, and those that each style has.
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
const PAYLOAD_LEN: u16 = 32;

/// Longest data of a request that are sent, and longest data that a server must take.
const DATA_MAX: u64 = 256 << 10;
const PAYLOAD_MAX: u64 = 32 << 20;
/// Bytes that every server reads in one chunk (`NBD_CMD_FLAG_DF`).
const ONE_CHUNK: u64 = 64 << 10;

/// How a client negotiates.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Structured,
    Extended,
}

/// What may become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Success,
    Error,
    Any,
}

/// A request that is not answered.
#[derive(Debug)]
struct Asked {
    command: u16,
    is_one: bool,
    offset: u64,
    len: u64,
    expects: Expect,
    /// Chunks with data.
    came: Vec<(u64, u64)>,
    error: u32,
}

/// A request as it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// How far a stream was read.
#[derive(Debug)]
enum Stage {
    Greeting,
    /// Options that are not answered.
    Options(VecDeque<u32>),
    Requests,
}

/// See the module.
pub(super) struct Peer {
    number: usize,
    stream: Option<UnixStream>,
    style: Style,
    lba_shift: u8,
    read_only: bool,
    has_zeroes: bool,
    /// It has selected `base:allocation`.
    describes: bool,
    stage: Stage,
    out: VecDeque<u8>,
    /// Bytes at the end of `out` that are not to be sent yet.
    pub(super) held_back: usize,
    came: Vec<u8>,
    asked: BTreeMap<u64, Asked>,
    next_cookie: u64,
    /// Something was sent that is no request: nothing is known of what follows.
    pub(super) is_raw: bool,
    pub(super) reads: bool,
    /// It takes no reply to what it sends from now on.
    has_disconnected: bool,
    /// It has asked for the end, and got it.
    is_served: bool,
    /// Time has passed in which it did not send, or did not read.
    may_starve: bool,
    may_block: bool,
}

fn be(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Peer {
    /// A client that chooses the export at once.
    pub(super) fn new(
        (number, stream): (usize, UnixStream),
        style: Style,
        lba_shift: u8,
        (read_only, how): (bool, u8),
    ) -> Self {
        stream.set_nonblocking(true).unwrap();
        let (has_zeroes, lists) = (how & 2 != 0, how & 4 != 0);
        let describes = how & 8 != 0 && style != Style::Simple;
        // Not with extended headers.
        let by_name = how & 1 != 0 && style != Style::Extended;
        let mut peer = Self {
            number,
            stream: Some(stream),
            style,
            lba_shift,
            read_only,
            has_zeroes,
            describes,
            stage: Stage::Greeting,
            out: VecDeque::new(),
            held_back: 0,
            came: Vec::new(),
            asked: BTreeMap::new(),
            next_cookie: 1,
            is_raw: false,
            reads: true,
            has_disconnected: false,
            is_served: false,
            may_starve: false,
            may_block: false,
        };
        // fixed newstyle, and no zeroes
        peer.out.extend([0, 0, 0, if has_zeroes { 1 } else { 3 }]);
        let name: &[u8; 2] = if read_only { b"ro" } else { b"rw" };
        if lists {
            peer.option(3, &[]);
        }
        match style {
            Style::Simple => {}
            Style::Structured => peer.option(8, &[]),
            Style::Extended => peer.option(11, &[]),
        }
        // The metadata contexts of the export; another one selects none.
        let contexts = |export: &[u8; 2], context: &[u8; 15]| {
            let len = [0, 0, 0, 15];
            [&[0, 0, 0, 2][..], export, &[0, 0, 0, 1], &len, context].concat()
        };
        if how & 16 != 0 {
            peer.option(9, &contexts(name, b"base:allocation"));
        }
        if describes {
            peer.option(10, &contexts(name, b"base:allocation"));
        } else if how & 32 != 0 && style != Style::Simple {
            peer.option(10, &contexts(name, b"base:allocatioN"));
        }
        if by_name {
            peer.option(1, name);
        } else {
            peer.option(7, &[0, 0, 0, 2, name[0], name[1], 0, 0]);
        }
        peer
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        self.out.extend(b"IHAVEOPT");
        self.out.extend(option.to_be_bytes());
        self.out.extend((data.len() as u32).to_be_bytes());
        self.out.extend(data);
        if let Stage::Options(options) = &mut self.stage {
            options.push_back(option);
        } else {
            self.stage = Stage::Options([0, option].into());
        }
    }

    fn id(&self, cookie: u64) -> Id {
        (self.number, cookie)
    }

    /// Whether it takes replies.
    pub(super) fn is_open(&self) -> bool {
        let is_read = matches!(self.stage, Stage::Requests);
        self.stream.is_some() && is_read && !self.is_raw && !self.has_disconnected
    }

    pub(super) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Has bytes sent that may be anything.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        if self.stream.is_some() && !self.has_disconnected && !bytes.is_empty() {
            self.is_raw = true;
            self.out.extend(bytes);
        }
    }

    /// Any error may come to what is in flight.
    pub(super) fn excuse(&mut self) {
        for asked in self.asked.values_mut() {
            if asked.expects == Expect::Success {
                asked.expects = Expect::Any;
            }
        }
    }

    fn expects(&self, ask: &Ask) -> Expect {
        let (is_chunked, is_extended) =
            (self.style != Style::Simple, self.style == Style::Extended);
        let allowed = FUA
            | match ask.command {
                READ if is_chunked => DF,
                WRITE if is_extended => PAYLOAD_LEN,
                ZERO => NO_HOLE | FAST_ZERO,
                STATUS if self.describes => REQ_ONE,
                READ | WRITE | FLUSH | TRIM | CACHE => 0,
                _ => return Expect::Error,
            };
        let is_change = matches!(ask.command, WRITE | TRIM | ZERO);
        if ask.flags & !allowed != 0 || is_change && self.read_only {
            return Expect::Error;
        }
        if ask.command == FLUSH {
            return Expect::Success;
        }
        if ask.offset.checked_add(ask.len).is_none_or(|end| end > SIZE) {
            return Expect::Error;
        }
        if ask.command == STATUS && ask.len == 0 {
            return Expect::Error;
        }
        let slow = FAST_ZERO | NO_HOLE;
        let is_any =
            ask.len == 0 || ask.flags & slow == slow || ask.flags & DF != 0 && ask.len > ONE_CHUNK;
        if is_any { Expect::Any } else { Expect::Success }
    }

    /// Has a request sent, with the data that it must have; `excused` where it may fail.
    pub(super) fn ask(&mut self, mut ask: Ask, excused: bool, model: &mut Model) {
        let is_extended = self.style == Style::Extended;
        let has_payload =
            |ask: &Ask| ask.command == WRITE || is_extended && ask.flags & PAYLOAD_LEN != 0;
        if self.stream.is_none() {
            return;
        }
        if has_payload(&ask) && ask.len > PAYLOAD_MAX {
            self.is_raw = true;
        } else if has_payload(&ask) {
            ask.len = ask.len.min(DATA_MAX);
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let magic: u32 = if is_extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        self.out.extend(magic.to_be_bytes());
        self.out.extend(ask.flags.to_be_bytes());
        self.out.extend(ask.command.to_be_bytes());
        self.out.extend(cookie.to_be_bytes());
        self.out.extend(ask.offset.to_be_bytes());
        if is_extended {
            self.out.extend(ask.len.to_be_bytes());
        } else {
            self.out.extend((ask.len as u32).to_be_bytes());
        }
        if self.is_raw {
            return;
        }
        let mut data = Vec::new();
        if has_payload(&ask) {
            let byte =
                |at: u64| (cookie * 37 + self.number as u64 * 101 + at * 13 + (at >> 8)) as u8;
            data.extend((0..ask.len).map(byte));
            self.out.extend(&data);
        }
        if ask.command == DISC {
            self.has_disconnected = true;
        }
        if self.has_disconnected {
            // Not even read.
            return;
        }
        let mut expects = self.expects(&ask);
        if expects != Expect::Error {
            let (at, len) = (ask.offset as usize, ask.len as usize);
            match ask.command {
                READ | STATUS => model.look(self.id(cookie), at, len),
                WRITE => model.change(self.id(cookie), at, &data),
                ZERO => model.change(self.id(cookie), at, &vec![0; len]),
                TRIM => {
                    // Memory reads as zeroes where it was deallocated: whole blocks.
                    let from = at.next_multiple_of(1 << self.lba_shift);
                    let to = (at + len) >> self.lba_shift << self.lba_shift;
                    if from < to {
                        model.change(self.id(cookie), from, &vec![0; to - from]);
                    }
                }
                _ => {}
            }
        }
        if excused && expects == Expect::Success {
            expects = Expect::Any;
        }
        let asked = Asked {
            command: ask.command,
            is_one: ask.flags & if ask.command == STATUS { REQ_ONE } else { DF } != 0,
            offset: ask.offset,
            len: ask.len,
            expects,
            came: Vec::new(),
            error: 0,
        };
        self.asked.insert(cookie, asked);
    }

    /// Sends what it may.
    pub(super) fn send(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        while self.out.len() > self.held_back {
            let (bytes, _) = self.out.as_slices();
            let len = bytes.len().min(self.out.len() - self.held_back);
            match stream.write(&bytes[..len]) {
                Ok(sent) => drop(self.out.drain(..sent)),
                // A full socket takes less, and one that was closed nothing.
                Err(_) => break,
            }
        }
    }

    /// Reads what came, if it reads.
    pub(super) fn take(&mut self, model: &mut Model) {
        let mut bytes = [0; 1 << 16];
        while self.reads
            && let Some(stream) = &mut self.stream
        {
            match stream.read(&mut bytes) {
                Ok(0) => {
                    self.stream = None;
                    assert!(!self.is_served || self.asked.is_empty(), "{:?}", self.asked);
                }
                Ok(len) => {
                    self.came.extend(&bytes[..len]);
                    self.decode(model);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.stream = None,
            }
        }
    }

    /// It closes its connection.
    pub(super) fn close(&mut self) {
        self.stream = None;
        self.has_disconnected = true;
    }

    /// Time passes.
    pub(super) fn wait(&mut self) {
        self.may_starve |= self.held_back > 0;
        self.may_block |= !self.reads;
    }

    /// The server has ended the connection.
    ///
    /// # Panics
    /// It had no reason.
    pub(super) fn ended(&mut self, end: &str, (excused, has_waited): (bool, bool)) {
        let right = match end {
            "closed" => self.has_disconnected || self.is_raw,
            "too-many-clients" => true,
            "silent" | "controller" => has_waited || excused,
            "slow-data" => self.may_starve || self.is_raw,
            "does-not-read" => self.may_block,
            "read-failed" | "changed" => excused,
            _ => self.is_raw,
        };
        assert!(right, "ended for {end}");
        self.is_served = end == "closed" && self.stream.is_some() && !self.is_raw;
        self.has_disconnected = true;
    }

    fn decode(&mut self, model: &mut Model) {
        let mut came = std::mem::take(&mut self.came);
        let mut at = 0;
        while !self.is_raw && at < came.len() {
            let taken = self.step(&came[at..], model);
            if taken == 0 {
                break;
            }
            at += taken;
        }
        if self.is_raw {
            at = came.len();
        }
        came.drain(..at);
        self.came = came;
    }

    /// Reads one thing; the number of its bytes, or 0 where some are missing.
    fn step(&mut self, bytes: &[u8], model: &mut Model) -> usize {
        match &mut self.stage {
            Stage::Greeting => unreachable!("it has sent options"),
            Stage::Options(options) => {
                let zeroes = if self.has_zeroes { 124 } else { 0 };
                match options.front() {
                    None => {
                        self.stage = Stage::Requests;
                        self.step(bytes, model)
                    }
                    // The greeting.
                    Some(0) => {
                        let Some(greeting) = bytes.get(..18) else {
                            return 0;
                        };
                        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
                        options.pop_front();
                        18
                    }
                    Some(1) => {
                        let Some(chosen) = bytes.get(..10 + zeroes) else {
                            return 0;
                        };
                        assert_eq!(be(&chosen[..8]), SIZE);
                        assert_eq!(chosen[9] & 2 != 0, self.read_only);
                        assert!(chosen[10..].iter().all(|byte| *byte == 0));
                        options.pop_front();
                        10 + zeroes
                    }
                    Some(option) => {
                        if bytes.len() < 20 {
                            return 0;
                        }
                        let len = be(&bytes[16..20]) as usize;
                        if bytes.len() < 20 + len {
                            return 0;
                        }
                        assert_eq!(be(&bytes[..8]), 0x0003_e889_0455_65a9);
                        assert_eq!(be(&bytes[8..12]), u64::from(*option));
                        match be(&bytes[12..16]) {
                            1 => drop(options.pop_front()),
                            2 => assert_eq!(*option, 3),
                            3 => assert_eq!(*option, 7),
                            4 => assert!([9, 10].contains(option)),
                            other => panic!("reply {other:#x} to option {option}"),
                        }
                        20 + len
                    }
                }
            }
            Stage::Requests if self.style == Style::Simple => self.simple(bytes, model),
            Stage::Requests => self.chunk(bytes, model),
        }
    }

    fn simple(&mut self, bytes: &[u8], model: &mut Model) -> usize {
        if bytes.len() < 16 {
            return 0;
        }
        assert_eq!(be(&bytes[..4]), 0x6744_6698);
        let (error, cookie) = (be(&bytes[4..8]) as u32, be(&bytes[8..16]));
        let asked = self.asked.get_mut(&cookie).expect("a reply to a request");
        let len = if error == 0 && asked.command == READ {
            asked.len as usize
        } else {
            0
        };
        let Some(data) = bytes.get(16..16 + len) else {
            return 0;
        };
        asked.error = error;
        if len > 0 {
            asked.came.push((asked.offset, len as u64));
            model.found((self.number, cookie), asked.offset as usize, data);
        }
        self.done(cookie, model);
        16 + len
    }

    fn chunk(&mut self, bytes: &[u8], model: &mut Model) -> usize {
        let is_extended = self.style == Style::Extended;
        let (head, magic) = if is_extended {
            (32, 0x6e8a_278c)
        } else {
            (20, 0x668e_33ef)
        };
        if bytes.len() < head {
            return 0;
        }
        assert_eq!(be(&bytes[..4]), magic);
        let (flags, kind) = (be(&bytes[4..6]), be(&bytes[6..8]));
        let (cookie, len) = (be(&bytes[8..16]), be(&bytes[head - 8..head]));
        // A compact header has 4 bytes of length.
        let len = if is_extended { len } else { len & 0xffff_ffff };
        assert!(len <= SIZE + 8, "a chunk of {len} bytes");
        let end = head + len as usize;
        let Some(payload) = bytes.get(head..end) else {
            return 0;
        };
        let asked = self.asked.get_mut(&cookie).expect("a reply to a request");
        assert!(flags <= 1, "flags {flags:#x}");
        if is_extended {
            assert_eq!(be(&bytes[16..24]), asked.offset);
        }
        let within = |at: u64, len: u64| at >= asked.offset && at + len <= asked.offset + asked.len;
        match kind {
            0 => assert!(len == 0 && flags == 1, "a chunk of no type is the last one"),
            1 => {
                assert!(len > 8, "data have a byte");
                assert_eq!(asked.command, READ);
                let (at, len) = (be(&payload[..8]), len - 8);
                assert!(within(at, len), "{at} and {len} bytes of {asked:?}");
                let overlaps = |(other, its): &(u64, u64)| at < other + its && *other < at + len;
                assert!(!asked.came.iter().any(overlaps), "bytes come once");
                asked.came.push((at, len));
                assert!(!asked.is_one || asked.came.len() == 1);
                model.found((self.number, cookie), at as usize, &payload[8..]);
            }
            5 | 6 => {
                assert_eq!((kind == 6, flags), (is_extended, 1));
                assert_eq!((asked.command, be(&payload[..4])), (STATUS, 1));
                let (fixed, unit) = if is_extended { (8, 16) } else { (4, 8) };
                let extents = payload[fixed..].chunks_exact(unit);
                assert!(extents.remainder().is_empty() && extents.len() > 0);
                assert!(!is_extended || be(&payload[4..8]) == extents.len() as u64);
                assert!(!asked.is_one || extents.len() == 1);
                let mut at = asked.offset;
                for extent in extents {
                    let (len, state) = extent.split_at(unit / 2);
                    let len = be(len);
                    assert!(len > 0 && within(at, len), "{len} at {at} of {asked:?}");
                    match be(state) {
                        0 => {}
                        3 => {
                            model.found((self.number, cookie), at as usize, &vec![0; len as usize])
                        }
                        other => panic!("state {other}"),
                    }
                    asked.came.push((at, len));
                    at += len;
                }
            }
            0x8001 | 0x8002 => {
                asked.error = be(&payload[..4]) as u32;
                assert_ne!(asked.error, 0);
                let behind = 6 + be(&payload[4..6]);
                let place = if kind == 0x8002 { 8 } else { 0 };
                assert_eq!(len, behind + place);
                if place > 0 {
                    let at = be(&payload[behind as usize..]);
                    assert!(within(at, 0), "{at} of {asked:?}");
                }
            }
            other => panic!("a chunk of type {other:#x}"),
        }
        if flags == 1 {
            self.done(cookie, model);
        }
        end
    }

    /// The last part of a reply.
    fn done(&mut self, cookie: u64, model: &mut Model) {
        let asked = self.asked.remove(&cookie).unwrap();
        let came: u64 = asked.came.iter().map(|(_, len)| len).sum();
        let is_right = match (asked.expects, asked.error) {
            (Expect::Success, error) => error == 0,
            (Expect::Error, error) => error != 0,
            (Expect::Any, _) => true,
        };
        assert!(is_right, "{asked:?}");
        if asked.command == READ && asked.error == 0 {
            assert_eq!(came, asked.len, "all bytes come");
        }
        if asked.command == STATUS && asked.error == 0 {
            assert!(came > 0, "a reply has an extent");
        }
        model.over(self.id(cookie), asked.error != 0);
    }
}
