//! Numbers and layouts here are typed from the specification once more.

#![allow(
    clippy::cast_possible_truncation,
    reason = "the tests' own data are short"
)]

mod contexts;
mod pieces;
mod tls;

use super::*;
use crate::BlockSizes;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;
const EXTENDED_HEADERS: u32 = 11;

const ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const UNSUP: u32 = (1 << 31) + 1;
const POLICY: u32 = (1 << 31) + 2;
const INVALID: u32 = (1 << 31) + 3;
const TLS_REQD: u32 = (1 << 31) + 5;
const UNKNOWN: u32 = (1 << 31) + 6;
const TOO_BIG: u32 = (1 << 31) + 9;
const EXT_HEADER_REQD: u32 = (1 << 31) + 10;

/// Client flags: fixed newstyle, and no zeroes.
const FIXED: [u8; 4] = [0, 0, 0, 1];
const FIXED_NO_ZEROES: [u8; 4] = [0, 0, 0, 3];

fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        description: String::new(),
        size: 0x0001_0203_0405_0600,
        // HAS_FLAGS, SEND_FLUSH, SEND_FUA, CAN_MULTI_CONN: 0x010d.
        flags: TransmissionFlags::new()
            .with_has_flags(true)
            .with_send_flush(true)
            .with_send_fua(true)
            .with_can_multi_conn(true),
        block: BlockSizes {
            minimum: 1,
            preferred: 4096,
            maximum: 1 << 25,
        },
        allocation: false,
    }
}

fn sparse(name: &str) -> Export {
    Export {
        allocation: true,
        ..export(name)
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Data of INFO and GO.
fn info(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((requests.len() as u16).to_be_bytes());
    data.extend(requests.iter().flat_map(|request| request.to_be_bytes()));
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

/// A reply to an option: option, type, data.
type Replied = (u32, u32, Vec<u8>);

/// Cuts what a server sends into replies. Messages of errors are dropped.
fn replies(mut out: &[u8]) -> Vec<Replied> {
    let mut replies = Vec::new();
    while !out.is_empty() {
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let (option, reply, len) = (word(8), word(12), word(16) as usize);
        let data = &out[20..20 + len];
        out = &out[20 + len..];
        if reply < 1 << 31 {
            replies.push((option, reply, data.to_vec()));
        } else {
            let message = std::str::from_utf8(data).unwrap();
            assert!(!message.is_empty() && message.len() <= 4096);
            replies.push((option, reply, Vec::new()));
        }
    }
    replies
}

/// A server that a client sends bytes.
struct Server {
    exports: Vec<Export>,
    negotiation: Negotiation,
}

impl Server {
    fn new(tls: Tls, exports: &[Export]) -> Self {
        let mut server = Self {
            exports: exports.to_vec(),
            negotiation: Negotiation::new(tls),
        };
        assert_eq!(server.send(&FIXED), (Vec::new(), Ok(None)));
        server
    }

    /// Takes all of these bytes up to an outcome, and returns what it sends.
    fn send(&mut self, bytes: &[u8]) -> (Vec<u8>, Result<Option<Outcome>, Fault>) {
        let mut input = bytes;
        let mut out = Vec::new();
        loop {
            let (left, sent) = (input.len(), out.len());
            match self.negotiation.step(&mut input, &self.exports, &mut out) {
                Ok(None) if input.len() < left || self.negotiation.has_more() => {
                    assert!(out.len() - sent <= MAX_ANSWER + 10_000);
                }
                end => {
                    assert!(end != Ok(None) || input.is_empty());
                    return (out, end);
                }
            }
        }
    }

    /// Replies to one option, which is not the last one.
    fn ask(&mut self, number: u32, data: &[u8]) -> Vec<Replied> {
        let (out, end) = self.send(&option(number, data));
        assert_eq!(end, Ok(None));
        let replies = replies(&out);
        assert!(replies.iter().all(|reply| reply.0 == number));
        replies
    }

    /// Type of the only reply to an option.
    fn only(&mut self, number: u32, data: &[u8]) -> u32 {
        let replies = self.ask(number, data);
        assert_eq!(replies.len(), 1);
        assert!(replies[0].2.is_empty());
        replies[0].1
    }

    /// The end of the connection with an option.
    fn end(&mut self, number: u32, data: &[u8]) -> Result<Option<Outcome>, Fault> {
        self.send(&option(number, data)).1
    }

    fn go(&mut self, name: &str) -> Agreed {
        match self.end(GO, &info(name, &[])) {
            Ok(Some(Outcome::Transmission(agreed))) => agreed,
            other => panic!("{other:?}"),
        }
    }
}

fn server(exports: &[Export]) -> Server {
    Server::new(Tls::Unavailable, exports)
}

#[test]
fn the_greeting_is_that_of_fixed_newstyle() {
    let mut expected = 0x4e42_444d_4147_4943_u64.to_be_bytes().to_vec();
    expected.extend(0x4948_4156_454F_5054_u64.to_be_bytes());
    expected.extend([0, 0b11]);
    assert_eq!(Negotiation::GREETING, expected[..]);
}

#[test]
fn flags_that_were_not_offered_end_the_connection() {
    for (flags, known) in [
        (0, true),
        (1, true),
        (3, true),
        (4, false),
        (1 << 31, false),
    ] {
        let mut negotiation = Negotiation::new(Tls::Unavailable);
        let bytes = u32::to_be_bytes(flags);
        let end = negotiation.step(&mut &bytes[..], &[], &mut Vec::new());
        let expected = if known {
            Ok(None)
        } else {
            Err(Fault::ClientFlags(flags))
        };
        assert_eq!(end, expected, "{flags:#x}");
    }
}

#[test]
fn an_option_begins_with_its_magic_number() {
    let mut bytes = option(LIST, &[]);
    bytes[0] ^= 1;
    let (out, end) = server(&[]).send(&bytes);
    assert_eq!(out, []);
    assert_eq!(end, Err(Fault::OptionMagic(0x4848_4156_454F_5054)));
}

#[test]
fn export_name_is_answered_with_size_and_flags() {
    let head = [0, 1, 2, 3, 4, 5, 6, 0, 0x01, 0x0d];
    let agreed = Agreed {
        export: 1,
        structured: false,
        extended: false,
        allocation: false,
    };
    for (flags, zeroes) in [(FIXED, 124), ([0; 4], 124), (FIXED_NO_ZEROES, 0)] {
        let mut server = Server {
            exports: vec![export("a"), export("b")],
            negotiation: Negotiation::new(Tls::Offered),
        };
        let bytes = [&flags[..], &option(EXPORT_NAME, b"b"), b"requests"].concat();
        let (out, end) = server.send(&bytes);
        assert_eq!(end, Ok(Some(Outcome::Transmission(agreed))));
        assert_eq!(out[..10], head);
        assert_eq!(out[10..], vec![0; zeroes]);
        assert_eq!(server.send(b"").1, Ok(None));
    }
}

#[test]
fn export_name_that_cannot_be_answered_ends_the_connection() {
    let exports = [export("a"), export(&"b".repeat(4096))];
    let mut names = server(&exports);
    assert_eq!(names.end(EXPORT_NAME, b"c"), Err(Fault::ExportName));
    let long = "b".repeat(4097);
    let end = server(&exports).end(EXPORT_NAME, long.as_bytes());
    assert_eq!(end, Err(Fault::ExportName));
    assert!(
        server(&exports)
            .end(EXPORT_NAME, &long.as_bytes()[1..])
            .is_ok()
    );
    let mut encrypted = Server::new(Tls::Required, &exports);
    assert_eq!(encrypted.end(EXPORT_NAME, b"a"), Err(Fault::ExportName));
    // It is not for extended headers.
    let mut extended = server(&exports);
    assert_eq!(extended.only(EXTENDED_HEADERS, &[]), ACK);
    assert_eq!(extended.end(EXPORT_NAME, b"a"), Err(Fault::ExportName));
}

#[test]
fn a_client_without_fixed_newstyle_may_only_choose() {
    let mut server = Server {
        exports: vec![export("a")],
        negotiation: Negotiation::new(Tls::Offered),
    };
    assert_eq!(server.send(&[0; 4]).1, Ok(None));
    assert_eq!(server.end(STARTTLS, &[]), Err(Fault::NotFixed(STARTTLS)));
}

#[test]
fn abort_is_acknowledged() {
    for data in [&b""[..], b"ignored", &[0; MAX_OPTION + 1]] {
        let mut server = server(&[]);
        let (out, end) = server.send(&option(ABORT, data));
        assert_eq!(replies(&out), [(ABORT, ACK, Vec::new())]);
        assert_eq!(end, Ok(Some(Outcome::Abort)));
    }
}

#[test]
fn list_has_names_and_descriptions() {
    let mut second = export("b");
    second.description = "a drive".to_owned();
    let mut server = server(&[export("a"), second]);
    assert_eq!(
        server.ask(LIST, &[]),
        [
            (LIST, REP_SERVER, b"\0\0\0\x01a".to_vec()),
            (LIST, REP_SERVER, b"\0\0\0\x01ba drive".to_vec()),
            (LIST, ACK, Vec::new()),
        ]
    );
    assert_eq!(server.only(LIST, b"x"), INVALID);
    server.exports.clear();
    assert_eq!(server.only(LIST, &[]), ACK);
}

#[test]
fn a_long_list_goes_in_pieces() {
    let exports: Vec<Export> = (0..100)
        .map(|number| export(&format!("{number:04096}")))
        .collect();
    let mut server = server(&exports);
    let ask = option(LIST, &[]);
    let bytes = [&ask[..], &option(ABORT, &[])].concat();
    let mut input = &bytes[..];
    let mut all = Vec::new();
    let mut calls = 0;
    let end = loop {
        let mut out = Vec::new();
        let end = server.negotiation.step(&mut input, &exports, &mut out);
        assert!(out.len() < MAX_ANSWER + 20 + 4 + 4096);
        all.extend(out);
        calls += 1;
        if !server.negotiation.has_more() {
            break end;
        }
        // The next option waits.
        assert_eq!((end, input), (Ok(None), &bytes[ask.len()..]));
    };
    // The end of the list goes with the next option, so that a caller sees that one has come.
    assert_eq!((calls, end), (8, Ok(Some(Outcome::Abort))));
    let replies = replies(&all);
    assert_eq!(replies.len(), 102);
    for (number, reply) in replies[..100].iter().enumerate() {
        assert_eq!(reply.2, string(&format!("{number:04096}")));
    }
    assert_eq!(replies[100], (LIST, ACK, Vec::new()));
}

#[test]
fn info_and_go_describe_an_export() {
    let mut described = export("b");
    described.description = "a drive".to_owned();
    for number in [INFO, GO] {
        let mut server = server(&[export("a"), described.clone()]);
        // BLOCK_SIZE, an unknown request, NAME, DESCRIPTION; one of them twice.
        let data = info("b", &[3, 99, 1, 2, 1]);
        let (out, end) = server.send(&option(number, &data));
        let mut size = vec![0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0x01, 0x0d];
        assert_eq!(
            replies(&out),
            [
                (number, REP_INFO, std::mem::take(&mut size)),
                (number, REP_INFO, b"\0\x01b".to_vec()),
                (number, REP_INFO, b"\0\x02a drive".to_vec()),
                (
                    number,
                    REP_INFO,
                    vec![0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]
                ),
                (number, ACK, Vec::new()),
            ]
        );
        let agreed = Agreed {
            export: 1,
            structured: false,
            extended: false,
            allocation: false,
        };
        let expected = (number == GO).then_some(Outcome::Transmission(agreed));
        assert_eq!(end, Ok(expected));
    }
}

#[test]
fn infos_that_are_not_requested_stay_away() {
    let mut server = server(&[export("a")]);
    let replies = server.ask(INFO, &info("a", &[]));
    assert_eq!(replies.len(), 2);
    // There is no description.
    assert_eq!(server.ask(INFO, &info("a", &[2])), replies);
}

#[test]
fn the_lengths_of_info_and_go_add_up() {
    let mut server = server(&[export("a")]);
    let right = info("a", &[3]);
    for number in [INFO, GO] {
        for len in 0..right.len() {
            assert_eq!(server.only(number, &right[..len]), INVALID, "{len}");
        }
        assert_eq!(server.only(number, &[&right[..], b"x"].concat()), INVALID);
        assert_eq!(server.only(number, &[0xff; 20]), INVALID);
        let long = info(&"a".repeat(4097), &[]);
        assert_eq!(server.only(number, &long), INVALID);
        let longest = info(&"a".repeat(4096), &[]);
        assert_eq!(server.only(number, &longest), UNKNOWN);
        assert_eq!(server.only(number, &info("b", &[3])), UNKNOWN);
    }
    assert_eq!(server.go("a").export, 0);
}

#[test]
fn the_empty_name_is_the_default_export() {
    let two = [export("a"), export("b")];
    assert_eq!(server(&two[1..]).go("").export, 0);
    assert_eq!(server(&two).only(GO, &info("", &[])), UNKNOWN);
    let mut named = two.to_vec();
    named.push(export(""));
    assert_eq!(server(&named).go("").export, 2);
    assert_eq!(server(&[]).only(GO, &info("", &[])), UNKNOWN);
    // The canonical name is the one that LIST has.
    let replies = server(&two[1..]).ask(INFO, &info("", &[1]));
    assert_eq!(replies[1].2, b"\0\x01b");
}

#[test]
fn structured_replies_are_agreed_once() {
    let mut server = server(&[export("a")]);
    assert_eq!(server.only(STRUCTURED_REPLY, b"x"), INVALID);
    assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
    assert_eq!(server.only(STRUCTURED_REPLY, &[]), INVALID);
    // SEND_DF is set.
    let replies = server.ask(INFO, &info("a", &[]));
    assert_eq!(replies[0].2[10..], [0x01, 0x8d]);
    let agreed = server.go("a");
    assert!(agreed.structured && !agreed.extended);
}

#[test]
fn send_df_is_not_an_exports_to_set() {
    let mut df = export("a");
    df.flags.set_send_df(true);
    let replies = server(&[df]).ask(INFO, &info("a", &[]));
    assert_eq!(replies[0].2[10..], [0x01, 0x0d]);
}

#[test]
fn extended_headers_include_structured_replies() {
    for before in [false, true] {
        let mut server = server(&[export("a")]);
        if before {
            assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
        }
        assert_eq!(server.only(EXTENDED_HEADERS, b"x"), INVALID);
        assert_eq!(server.only(EXTENDED_HEADERS, &[]), ACK);
        assert_eq!(server.only(EXTENDED_HEADERS, &[]), INVALID);
        assert_eq!(server.only(STRUCTURED_REPLY, &[]), EXT_HEADER_REQD);
        let agreed = server.go("a");
        assert!(agreed.structured && agreed.extended);
    }
}

#[test]
fn unknown_options_are_unsupported() {
    let mut server = server(&[export("a")]);
    for number in [0, 4, 12, 99, u32::MAX] {
        assert_eq!(server.only(number, b"data"), UNSUP);
        assert_eq!(server.only(number, &[0; MAX_OPTION + 1]), UNSUP);
    }
    assert_eq!(server.go("a").export, 0);
}

#[test]
fn options_that_are_too_long_are_skipped() {
    let mut server = server(&[export("a")]);
    for number in [INFO, GO, LIST_META_CONTEXT] {
        assert_eq!(server.only(number, &[0; MAX_OPTION]), INVALID);
        assert_eq!(server.only(number, &[0; MAX_OPTION + 1]), TOO_BIG);
        let longest = vec![0; MAX_SKIPPED as usize];
        assert_eq!(server.only(number, &longest), TOO_BIG);
        assert!(server.negotiation.held.is_empty());
    }
    assert_eq!(server.only(LIST, &[0; MAX_OPTION + 1]), INVALID);
    let mut head = option(GO, &[]);
    head[12..].copy_from_slice(&(MAX_SKIPPED + 1).to_be_bytes());
    assert_eq!(
        server.send(&head).1,
        Err(Fault::OptionLength(MAX_SKIPPED + 1))
    );
}

#[test]
fn a_flood_of_options_ends_the_connection() {
    let mut server = Server::new(Tls::Offered, &[]);
    for _ in 0..MAX_OPTIONS - 2 {
        assert_eq!(server.only(99, &[]), UNSUP);
    }
    // TLS is no way to more.
    assert_eq!(server.end(STARTTLS, &[]), Ok(Some(Outcome::StartTls)));
    server.negotiation = server.negotiation.through_tls();
    assert_eq!(server.only(99, &[]), UNSUP);
    assert_eq!(server.end(99, &[]), Err(Fault::OptionFlood));
}
