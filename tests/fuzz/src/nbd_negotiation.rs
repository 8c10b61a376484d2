//! An NBD client that sends anything, in any pieces, against a reader that has the whole stream and
//! knows the numbers and offsets of the specification only: options, then requests.

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use nbd::{BlockSizes, Export, Fault, Negotiation, Outcome, Request, Tls, TransmissionFlags};

const ALL_TLS: [Tls; 4] = [Tls::Unavailable, Tls::Offered, Tls::Required, Tls::Done];
const NAMES: [&str; 5] = ["a", "", "ab", "b\u{e9}", "c"];
const QUERIES: [&str; 5] = ["base:allocation", "base:", "base:x", "qemu:", "base"];

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    tls: u8,
    flags: u8,
    exports: Vec<Given>,
    /// There are more exports than one answer has room for.
    many: bool,
    /// Lengths of the pieces in which the stream arrives.
    cuts: Vec<u16>,
    options: Vec<Sent>,
    /// `NBD_OPT_STARTTLS` is the last option in clear, and these come behind a handshake.
    encrypted: Option<Vec<Sent>>,
    /// `NBD_OPT_GO` for the first export is the last option.
    goes: bool,
    requests: Vec<Asked>,
    /// More bytes, such as a recorded session.
    rest: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
struct Given {
    name: u8,
    description: bool,
    size: u64,
    flags: u16,
    allocation: bool,
}

#[derive(Arbitrary, Debug)]
enum Sent {
    Raw(Vec<u8>),
    /// An option that is right except for its data.
    Any {
        option: u8,
        data: Vec<u8>,
    },
    Long {
        option: u8,
        len: u16,
    },
    /// Only the head of an option.
    Head {
        option: u8,
        len: u32,
    },
    ExportName {
        name: u8,
    },
    Info {
        go: bool,
        name: u8,
        requests: Vec<u8>,
        count: Option<u16>,
    },
    Contexts {
        set: bool,
        name: u8,
        queries: Vec<u8>,
        count: Option<u32>,
    },
}

#[derive(Arbitrary, Debug)]
struct Asked {
    extended: bool,
    flags: u16,
    command: u8,
    cookie: u64,
    offset: u64,
    len: u64,
    data: u8,
}

/// What the server sends, and the requests it reads.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// A reply to an option: option, type, data. Errors have a message, which is not compared.
    Reply(u32, u32, Vec<u8>),
    /// The answer to `NBD_OPT_EXPORT_NAME`.
    Chosen(Vec<u8>),
    /// Flags, command, cookie, offset, length, and the bytes of data that follow.
    Request(u16, u16, u64, u64, u64, u64),
}

/// How a stream ends: its bytes, an outcome, or the name of a fault.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Bytes,
    Abort,
    Fault(&'static str),
}

fn named(list: &[&'static str], index: u8) -> &'static str {
    list[usize::from(index) % list.len()]
}

fn string(text: &str, stream: &mut Vec<u8>) {
    stream.extend((text.len() as u32).to_be_bytes());
    stream.extend(text.as_bytes());
}

impl Input {
    fn tls(&self) -> Tls {
        ALL_TLS[usize::from(self.tls) % 4]
    }

    fn exports(&self) -> Vec<Export> {
        let mut names = BTreeSet::new();
        let mut exports = Vec::new();
        for given in self.exports.iter().take(8) {
            let name = named(&NAMES, given.name);
            if !names.insert(name) {
                continue;
            }
            exports.push(Export {
                name: name.to_owned(),
                description: if given.description { "a drive" } else { "" }.to_owned(),
                size: given.size,
                flags: TransmissionFlags::from_bits(given.flags),
                block: BlockSizes {
                    minimum: 1,
                    preferred: 4096,
                    maximum: 1 << 20,
                },
                allocation: given.allocation,
            });
        }
        if self.many
            && let Some(first) = exports.first().cloned()
        {
            exports.extend((0..40).map(|number| Export {
                name: format!("{number:04096}"),
                ..first.clone()
            }));
        }
        exports
    }

    /// What the client sends in clear, and through TLS.
    fn streams(&self) -> [Vec<u8>; 2] {
        let mut clear = u32::from(self.flags).to_be_bytes().to_vec();
        for sent in self.options.iter().take(16) {
            sent.write(&mut clear);
        }
        let mut encrypted = Vec::new();
        let mut last = &mut clear;
        if let Some(options) = &self.encrypted {
            let starttls = Sent::Any {
                option: 5,
                data: Vec::new(),
            };
            starttls.write(last);
            last = &mut encrypted;
            options.iter().take(16).for_each(|sent| sent.write(last));
        }
        if self.goes {
            let go = Sent::Info {
                go: true,
                name: self.exports.first().map_or(0, |given| given.name),
                requests: Vec::new(),
                count: None,
            };
            go.write(last);
        }
        self.requests.iter().for_each(|asked| asked.write(last));
        last.extend(&self.rest);
        [clear, encrypted]
    }
}

impl Sent {
    fn write(&self, stream: &mut Vec<u8>) {
        let mut data = Vec::new();
        let (option, len) = match self {
            Sent::Raw(bytes) => return stream.extend(bytes),
            Sent::Any {
                option,
                data: bytes,
            } => {
                data.extend(bytes);
                (u32::from(*option % 16), None)
            }
            Sent::Long { option, len } => {
                data.resize(usize::from(*len), 1);
                (u32::from(*option % 16), None)
            }
            Sent::Head { option, len } => (u32::from(*option % 16), Some(*len)),
            Sent::ExportName { name } => {
                data.extend(named(&NAMES, *name).as_bytes());
                (1, None)
            }
            Sent::Info {
                go,
                name,
                requests,
                count,
            } => {
                string(named(&NAMES, *name), &mut data);
                data.extend(count.unwrap_or(requests.len() as u16).to_be_bytes());
                data.extend(requests.iter().flat_map(|info| [0, info % 5]));
                (6 + u32::from(*go), None)
            }
            Sent::Contexts {
                set,
                name,
                queries,
                count,
            } => {
                string(named(&NAMES, *name), &mut data);
                data.extend(count.unwrap_or(queries.len() as u32).to_be_bytes());
                for query in queries {
                    string(named(&QUERIES, *query), &mut data);
                }
                (9 + u32::from(*set), None)
            }
        };
        stream.extend(b"IHAVEOPT");
        stream.extend(option.to_be_bytes());
        stream.extend(len.unwrap_or(data.len() as u32).to_be_bytes());
        stream.extend(data);
    }
}

impl Asked {
    fn write(&self, stream: &mut Vec<u8>) {
        let magic: u32 = if self.extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        stream.extend(magic.to_be_bytes());
        stream.extend(self.flags.to_be_bytes());
        stream.extend([0, self.command % 10]);
        stream.extend(self.cookie.to_be_bytes());
        stream.extend(self.offset.to_be_bytes());
        let len = if self.data > 0 {
            u64::from(self.data)
        } else {
            self.len
        };
        if self.extended {
            stream.extend(len.to_be_bytes());
        } else {
            stream.extend((len as u32).to_be_bytes());
        }
        stream.extend(vec![2; usize::from(self.data)]);
    }
}

/// Reads the stream with the code under test, in pieces.
struct Server<'a> {
    exports: &'a [Export],
    negotiation: Negotiation,
    out: Vec<u8>,
    cuts: Box<dyn Iterator<Item = usize> + 'a>,
}

impl Server<'_> {
    /// Hands over a stream, and returns the outcome with the bytes behind it.
    fn take<'b>(&mut self, stream: &'b [u8]) -> Result<(Option<Outcome>, &'b [u8]), Fault> {
        let mut end = 0;
        let mut at = 0;
        loop {
            let mut input = &stream[at..end];
            let (before, sent) = (input.len(), self.out.len());
            let outcome = self
                .negotiation
                .step(&mut input, self.exports, &mut self.out)?;
            assert!(self.out.len() - sent <= (1 << 16) + 10_000);
            at = end - input.len();
            match outcome {
                Some(outcome) => return Ok((Some(outcome), &stream[at..])),
                None if input.len() < before || self.negotiation.has_more() => {}
                None => {
                    assert!(input.is_empty());
                    if end == stream.len() {
                        return Ok((None, &[]));
                    }
                    end += self.cuts.next().unwrap().min(stream.len() - end);
                }
            }
        }
    }
}

/// Cuts what a negotiation has sent into replies.
fn replies(mut out: &[u8], chosen: Option<usize>) -> Vec<Said> {
    let mut said = Vec::new();
    let word = |out: &[u8], at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
    while out.len() > chosen.unwrap_or(0) {
        assert_eq!(out[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let (option, reply, len) = (word(out, 8), word(out, 12), word(out, 16) as usize);
        let data = &out[20..20 + len];
        let error = reply >> 31 != 0;
        if error {
            assert!(std::str::from_utf8(data).is_ok_and(|text| !text.is_empty()));
        }
        let data = if error { Vec::new() } else { data.to_vec() };
        said.push(Said::Reply(option, reply, data));
        out = &out[20 + len..];
    }
    if chosen.is_some() {
        said.push(Said::Chosen(out.to_vec()));
    }
    said
}

fn served(input: &Input, exports: &[Export], streams: &[Vec<u8>; 2]) -> (Vec<Said>, End) {
    let cuts = input.cuts.iter().map(|cut| usize::from(*cut) + 1);
    let mut server = Server {
        exports,
        negotiation: Negotiation::new(input.tls()),
        out: Vec::new(),
        cuts: Box::new(cuts.chain(std::iter::repeat(usize::MAX))),
    };
    let mut taken = server.take(&streams[0]);
    if let Ok((Some(Outcome::StartTls), behind)) = taken {
        taken = server.take(behind);
        if taken == Ok((None, &[])) {
            server.negotiation = server.negotiation.through_tls();
            taken = server.take(&streams[1]);
        }
    }
    let (outcome, rest) = match taken {
        Ok(taken) => taken,
        Err(fault) => return (replies(&server.out, None), End::Fault(fault.name())),
    };
    match outcome {
        None => (replies(&server.out, None), End::Bytes),
        Some(Outcome::Abort) => (replies(&server.out, None), End::Abort),
        Some(Outcome::StartTls) => unreachable!("TLS goes through TLS"),
        Some(Outcome::Transmission(agreed)) => {
            assert!(agreed.export < exports.len() && (agreed.structured || !agreed.extended));
            // GO ends with an acknowledgement of itself.
            let out = &server.out;
            let go = out.ends_with(&[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0]);
            let zeroes = if input.flags & 2 == 0 { 124 } else { 0 };
            let mut said = replies(out, (!go).then_some(10 + zeroes));
            let end = requests(rest, agreed.extended, &mut said);
            (said, end)
        }
    }
}

/// Reads requests with the code under test.
fn requests(mut rest: &[u8], extended: bool, said: &mut Vec<Said>) -> End {
    loop {
        let request = match Request::parse(rest, extended) {
            Ok(Some(request)) => request,
            Ok(None) => return End::Bytes,
            Err(fault) => return End::Fault(fault.name()),
        };
        let encoded = request.encode(extended).unwrap();
        assert_eq!(rest[..encoded.len()], encoded[..]);
        let payload = request.payload(extended);
        said.push(Said::Request(
            request.flags.into_bits(),
            request.command.0,
            request.cookie,
            request.offset,
            request.len,
            payload,
        ));
        rest = &rest[encoded.len()..];
        let Some(behind) = rest.get(payload as usize..) else {
            return End::Bytes;
        };
        rest = behind;
    }
}

/// Reads the stream from its first byte to its last, by offsets.
#[derive(Default)]
struct Reader<'a> {
    exports: &'a [Export],
    /// 0: there is none; 1, 2: offered, required; 3: in use.
    tls: u8,
    flags: u32,
    structured: bool,
    extended: bool,
    set: Option<usize>,
    said: Vec<Said>,
}

/// What a reader has come to: the end, TLS, or transmission.
enum Come {
    End(End),
    Tls,
    Transmission,
}

fn number(bytes: &[u8], len: usize) -> Option<u64> {
    let bytes = bytes.get(..len)?;
    Some(
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

/// A string behind its length, and what follows.
fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = number(data, 4)?;
    if len > 4096 {
        return None;
    }
    data[4..].split_at_checked(len as usize)
}

impl Reader<'_> {
    fn reply(&mut self, option: u32, reply: u32, data: &[u8]) {
        self.said.push(Said::Reply(option, reply, data.to_vec()));
    }

    fn error(&mut self, option: u32, error: u32) {
        self.reply(option, (1 << 31) + error, &[]);
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let mut found = (0..self.exports.len()).filter(|index| {
            let export = self.exports[*index].name.as_bytes();
            export == name || name.is_empty() && self.exports.len() == 1
        });
        found.next()
    }

    /// Size and flags.
    fn described(&self, index: usize) -> Vec<u8> {
        let export = &self.exports[index];
        let mut flags = export.flags.into_bits() | 1;
        flags = flags & !(1 << 7) | u16::from(self.structured) << 7;
        if !(self.extended && self.set == Some(index)) {
            flags &= !(1 << 12);
        }
        [&export.size.to_be_bytes()[..], &flags.to_be_bytes()].concat()
    }

    /// Takes options up to an end. The stream is left behind it.
    fn options(&mut self, rest: &mut &[u8]) -> Come {
        let fault = |name| Come::End(End::Fault(name));
        loop {
            if rest.len() < 16 {
                return Come::End(End::Bytes);
            }
            if rest[..8] != *b"IHAVEOPT" {
                return fault("option-magic");
            }
            let option = number(&rest[8..], 4).unwrap() as u32;
            let len = number(&rest[12..], 4).unwrap() as usize;
            if option == 1 {
                if self.tls == 2 || self.extended || len > 4096 {
                    return fault("export-name");
                }
            } else if self.flags & 1 == 0 {
                return fault("not-fixed");
            }
            if len > 1 << 20 {
                return fault("option-length");
            }
            let Some(data) = rest.get(16..16 + len) else {
                return Come::End(End::Bytes);
            };
            *rest = &rest[16 + len..];
            match option {
                1 => {
                    let Some(index) = self.find(data) else {
                        return fault("export-name");
                    };
                    let mut bytes = self.described(index);
                    bytes.resize(if self.flags & 2 == 0 { 134 } else { 10 }, 0);
                    self.said.push(Said::Chosen(bytes));
                    return Come::Transmission;
                }
                2 => {
                    self.reply(2, 1, &[]);
                    return Come::End(End::Abort);
                }
                5 if len > 0 => self.error(5, 3),
                5 if self.tls == 0 => self.error(5, 2),
                5 if self.tls == 3 => self.error(5, 3),
                5 if !rest.is_empty() => return fault("clear-bytes"),
                5 => {
                    self.reply(5, 1, &[]);
                    return Come::Tls;
                }
                _ if self.tls == 2 => self.error(option, 5),
                3 | 8 | 11 if len > 0 => self.error(option, 3),
                3 => self.list(),
                6 | 7 => {
                    if self.info(option, data) {
                        return Come::Transmission;
                    }
                }
                8 if self.extended => self.error(8, 10),
                8 | 11 => {
                    let already = if option == 8 {
                        self.structured
                    } else {
                        self.extended
                    };
                    self.structured = true;
                    self.extended |= option == 11;
                    if already {
                        self.error(option, 3);
                    } else {
                        self.reply(option, 1, &[]);
                    }
                }
                9 | 10 => self.contexts(option, data),
                _ => self.error(option, 1),
            }
        }
    }

    fn list(&mut self) {
        for export in self.exports {
            let mut data = Vec::new();
            string(&export.name, &mut data);
            data.extend(export.description.as_bytes());
            self.reply(3, 2, &data);
        }
        self.reply(3, 1, &[]);
    }

    /// Whether the client has chosen.
    fn info(&mut self, option: u32, data: &[u8]) -> bool {
        if data.len() > 8192 {
            self.error(option, 9);
            return false;
        }
        let Some((name, requests)) = text(data).filter(|(_, requests)| {
            number(requests, 2).is_some_and(|count| requests.len() as u64 == 2 + 2 * count)
        }) else {
            self.error(option, 3);
            return false;
        };
        let Some(index) = self.find(name) else {
            self.error(option, 6);
            return false;
        };
        let export = &self.exports[index];
        let described = self.described(index);
        self.reply(option, 3, &[&[0, 0], &described[..]].concat());
        let asks = |info: u8| requests[2..].chunks(2).any(|request| request == [0, info]);
        if asks(1) {
            self.reply(option, 3, &[&[0, 1], export.name.as_bytes()].concat());
        }
        if asks(2) && !export.description.is_empty() {
            self.reply(
                option,
                3,
                &[&[0, 2], export.description.as_bytes()].concat(),
            );
        }
        if asks(3) {
            let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 0, 16, 0, 0];
            self.reply(option, 3, &sizes);
        }
        self.reply(option, 1, &[]);
        option == 7
    }

    fn contexts(&mut self, option: u32, data: &[u8]) {
        let set = option == 10;
        if set {
            self.set = None;
            if !self.structured {
                return self.error(option, 3);
            }
        }
        if data.len() > 8192 {
            return self.error(option, 9);
        }
        let queries = || {
            let (name, rest) = text(data)?;
            let count = number(rest, 4)?;
            let mut rest = &rest[4..];
            let mut queries = BTreeSet::new();
            for _ in 0..count {
                let (query, behind) = text(rest)?;
                queries.insert(query);
                rest = behind;
            }
            rest.is_empty().then_some((name, count, queries))
        };
        let Some((name, count, queries)) = queries() else {
            return self.error(option, 3);
        };
        let Some(index) = self.find(name) else {
            return self.error(option, 6);
        };
        let wildcard = !set && (count == 0 || queries.contains(&b"base:"[..]));
        let asked = wildcard || queries.contains(&b"base:allocation"[..]);
        if asked && self.exports[index].allocation {
            let id = [0, 0, 0, u8::from(set)];
            self.reply(option, 4, &[&id, &b"base:allocation"[..]].concat());
            if set {
                self.set = Some(index);
            }
        }
        self.reply(option, 1, &[]);
    }

    fn requests(&mut self, mut rest: &[u8]) -> End {
        let (magic, len) = if self.extended {
            (0x21e4_1c71, 32)
        } else {
            (0x2560_9513, 28)
        };
        loop {
            if number(rest, 4).is_some_and(|found| found != magic) {
                return End::Fault("request-magic");
            }
            if rest.len() < len {
                return End::Bytes;
            }
            let field = |at: usize, len: usize| number(&rest[at..], len).unwrap();
            let (flags, command) = (field(4, 2), field(6, 2));
            let count = field(24, len - 24);
            // Of a write always: QEMU 11 leaves the flag out.
            let payload = command == 1 || self.extended && flags & 1 << 5 != 0;
            let payload = if payload { count } else { 0 };
            if payload > 1 << 25 {
                return End::Fault("request-length");
            }
            self.said.push(Said::Request(
                flags as u16,
                command as u16,
                field(8, 8),
                field(16, 8),
                count,
                payload,
            ));
            if (rest.len() - len) < payload as usize {
                return End::Bytes;
            }
            rest = &rest[len + payload as usize..];
        }
    }
}

fn expected(input: &Input, exports: &[Export], streams: &[Vec<u8>; 2]) -> (Vec<Said>, End) {
    let [clear, encrypted] = streams;
    let mut reader = Reader {
        exports,
        tls: input.tls % 4,
        flags: u32::from(input.flags),
        ..Reader::default()
    };
    if reader.flags > 3 {
        return (Vec::new(), End::Fault("client-flags"));
    }
    let mut rest = &clear[4..];
    let mut come = reader.options(&mut rest);
    if let Come::Tls = come {
        rest = encrypted;
        (reader.tls, reader.structured, reader.extended) = (3, false, false);
        reader.set = None;
        come = reader.options(&mut rest);
    }
    let end = match come {
        Come::End(end) => end,
        Come::Tls => unreachable!("it is in use"),
        Come::Transmission => reader.requests(rest),
    };
    (reader.said, end)
}

pub(crate) fn run(input: Input) {
    let (exports, streams) = (input.exports(), input.streams());
    let mut served = served(&input, &exports, &streams);
    if served.1 == End::Fault("clear-bytes") {
        // Bytes that came later came behind an acknowledgement.
        served
            .0
            .pop_if(|last| *last == Said::Reply(5, 1, Vec::new()));
    }
    assert_eq!(served, expected(&input, &exports, &streams));
}
