//! The fixed newstyle negotiation.
//!
//! A negotiation takes client flags and options one at a time, however the stream is cut, and holds
//! what has come of one. A client has to wait for the replies to an option before it sends the next
//! one, so that a caller may send `out` before it goes on.
//!
//! Of options that are too long the bytes are skipped, within a bound. Whether TLS is needed is
//! judged before anything else of an option. With TLS the negotiation of options begins again, and
//! keeps only client flags and the number of options.

mod answer;
mod data;

use self::answer::Answer;
use self::data::{Contexts, Info, find};
use crate::bytes::Bytes;
use crate::constants::{
    BASE_ALLOCATION_ID, ClientFlags, IHAVEOPT, InfoType, MAX_STRING, OptionReply, OptionType,
};
use crate::{Export, Fault, TransmissionFlags};

/// Longest data of an option that are taken, in bytes: a name of 4096 and what may stand beside it.
pub const MAX_OPTION: usize = 8192;
/// Longest data of an option that are skipped and answered with an error, in bytes. A longer option
/// ends the connection.
pub const MAX_SKIPPED: u32 = 1 << 20;
/// Most options of a connection, with those before TLS. One more ends it. A client may ask two or
/// three for each export of a list (`nbdinfo --list`).
pub const MAX_OPTIONS: u32 = 1 << 14;
/// Bytes after which the answer to `NBD_OPT_LIST` pauses. It is the only one that may be longer.
pub const MAX_ANSWER: usize = 1 << 16;

/// Bytes of the client flags.
const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes of an option before its data.
const OPTION_LEN: usize = 16;
/// Zeroes behind the reply to `NBD_OPT_EXPORT_NAME`.
const RESERVED: [u8; 124] = [0; 124];

/// Answer to `NBD_OPT_STARTTLS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// There is no TLS.
    Unavailable,
    /// A client may ask for it.
    Offered,
    /// A client must ask for it before anything else.
    Required,
    /// The connection goes through TLS already.
    Done,
}

/// Parameters that both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Index of the export.
    pub export: usize,
    /// `NBD_OPT_STRUCTURED_REPLY`.
    pub structured: bool,
    /// `NBD_OPT_EXTENDED_HEADERS`, which includes structured replies.
    pub extended: bool,
    /// The client has asked for `base:allocation` of this export.
    pub allocation: bool,
}

/// How a negotiation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Requests come from now on.
    Transmission(Agreed),
    /// A handshake of TLS comes from now on, when the reply has gone; after it a new negotiation
    /// of the options begins ([`Negotiation::through_tls`]).
    StartTls,
    /// The client leaves, when the reply has gone.
    Abort,
}

/// The next part of the negotiation.
#[derive(Clone, Copy, Debug)]
enum Phase {
    ClientFlags,
    Option,
    Data {
        option: OptionType,
        len: usize,
    },
    /// Data that are too long.
    Skip {
        option: OptionType,
        left: usize,
    },
    /// More entries of the list of exports go, from this one on, and the end of the list.
    List {
        next: usize,
    },
    /// The handshake of TLS, which is not ours.
    Handshake,
    /// There was another outcome.
    Ended,
}

/// Data of an option.
#[derive(Clone, Copy)]
enum Data<'a> {
    Whole(&'a [u8]),
    /// They were longer than [`MAX_OPTION`], and skipped.
    TooLong,
}

impl Data<'_> {
    fn is_empty(self) -> bool {
        matches!(self, Self::Whole([]))
    }
}

/// Changes by options. A handshake of TLS drops them.
#[derive(Debug, Default)]
struct State {
    structured: bool,
    extended: bool,
    /// Name of the export whose `base:allocation` the client has set.
    allocation: Option<String>,
}

/// The state of a negotiation.
#[derive(Debug)]
pub struct Negotiation {
    tls: Tls,
    client: ClientFlags,
    phase: Phase,
    /// Bytes of what comes next.
    held: Vec<u8>,
    /// Number of options.
    options: u32,
    state: State,
    /// No export may be chosen.
    is_full: bool,
    /// One was asked for meanwhile.
    was_refused: bool,
}

impl Negotiation {
    /// First bytes of a server: it speaks fixed newstyle, and a client may decline zeroes.
    pub const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";

    /// A connection that was accepted and has got [`Self::GREETING`].
    #[must_use]
    pub fn new(tls: Tls) -> Self {
        Self {
            tls,
            client: ClientFlags::new(),
            phase: Phase::ClientFlags,
            held: Vec::new(),
            options: 0,
            state: State::default(),
            is_full: false,
            was_refused: false,
        }
    }

    /// The negotiation behind a handshake of TLS: after [`Outcome::StartTls`] the client sends
    /// options again, and no flags.
    #[must_use]
    pub fn through_tls(self) -> Self {
        Self {
            tls: Tls::Done,
            client: self.client,
            phase: Phase::Option,
            held: Vec::new(),
            options: self.options,
            state: State::default(),
            is_full: self.is_full,
            was_refused: self.was_refused,
        }
    }

    /// Whether the answer to the last option is not complete: [`Self::step`] appends more of it
    /// when it is called again, without more input.
    #[must_use]
    pub fn has_more(&self) -> bool {
        matches!(self.phase, Phase::List { .. })
    }

    /// From now on an export can be chosen, or none: the server has no room for a client.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Whether an export was asked for since the last call that could not be chosen for that.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.was_refused)
    }

    /// Takes bytes, at most one option of them, and appends its replies to `out`: at most
    /// [`MAX_ANSWER`] bytes and two replies. `None`: call it again with what is left of `input`
    /// where it has taken something or [`Self::has_more`], and otherwise with more. It takes
    /// nothing after an outcome.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, Fault> {
        loop {
            match self.phase {
                Phase::ClientFlags => {
                    let Some(flags) = self.gather(input, CLIENT_FLAGS_LEN) else {
                        return Ok(None);
                    };
                    let flags = Bytes(&flags).u32().unwrap_or_default();
                    self.client = ClientFlags::from_bits(flags);
                    if self.client.unknown() != 0 {
                        return Err(Fault::ClientFlags(flags));
                    }
                    self.phase = Phase::Option;
                }
                Phase::Option => {
                    let Some(head) = self.gather(input, OPTION_LEN) else {
                        return Ok(None);
                    };
                    self.phase = self.option(&head)?;
                }
                Phase::Data { option, len } => {
                    let Some(data) = self.gather(input, len) else {
                        return Ok(None);
                    };
                    self.phase = Phase::Option;
                    return self.answer(option, Data::Whole(&data), input, exports, out);
                }
                Phase::Skip { option, left } => {
                    let here = left.min(input.len());
                    *input = &input[here..];
                    if here < left {
                        let left = left - here;
                        self.phase = Phase::Skip { option, left };
                        return Ok(None);
                    }
                    self.phase = Phase::Option;
                    return self.answer(option, Data::TooLong, input, exports, out);
                }
                Phase::List { next } if next < exports.len() => {
                    self.phase = Phase::List {
                        next: entries(next, exports, out),
                    };
                    return Ok(None);
                }
                Phase::List { .. } => {
                    // This call goes on with the next option, which may have come already: a
                    // call that takes no byte tells its caller to wait for more.
                    listing(out).ack();
                    self.phase = Phase::Option;
                }
                Phase::Handshake if !input.is_empty() => return Err(Fault::ClearBytes),
                Phase::Handshake | Phase::Ended => return Ok(None),
            }
        }
    }

    /// Takes what is missing of `len` bytes, and returns them when all have come.
    fn gather(&mut self, input: &mut &[u8], len: usize) -> Option<Vec<u8>> {
        let (taken, rest) = input.split_at((len - self.held.len()).min(input.len()));
        self.held.extend_from_slice(taken);
        *input = rest;
        (self.held.len() == len).then(|| std::mem::take(&mut self.held))
    }

    /// The part after the head of an option.
    fn option(&mut self, head: &[u8]) -> Result<Phase, Fault> {
        let mut head = Bytes(head);
        let magic = head.u64().unwrap_or_default();
        if magic != IHAVEOPT {
            return Err(Fault::OptionMagic(magic));
        }
        let option = OptionType(head.u32().unwrap_or_default());
        let len = head.u32().unwrap_or_default();
        if self.options == MAX_OPTIONS {
            return Err(Fault::OptionFlood);
        }
        self.options += 1;
        if option == OptionType::EXPORT_NAME {
            // There is no reply with an error.
            if self.tls == Tls::Required || self.state.extended || bytes(len) > MAX_STRING {
                return Err(Fault::ExportName);
            }
        } else if !self.client.fixed_newstyle() {
            return Err(Fault::NotFixed(option.0));
        }
        if len > MAX_SKIPPED {
            return Err(Fault::OptionLength(len));
        }
        let len = bytes(len);
        Ok(if len > MAX_OPTION {
            Phase::Skip { option, left: len }
        } else {
            Phase::Data { option, len }
        })
    }

    fn answer(
        &mut self,
        option: OptionType,
        data: Data<'_>,
        input: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, Fault> {
        let mut answer = Answer { option, out };
        match option {
            OptionType::EXPORT_NAME => {
                return self.export_name(data, exports, answer.out).map(Some);
            }
            OptionType::ABORT => {
                self.phase = Phase::Ended;
                answer.ack();
                return Ok(Some(Outcome::Abort));
            }
            OptionType::STARTTLS => return self.start_tls(data, input, answer),
            _ if self.tls == Tls::Required => {
                answer.error(
                    OptionReply::ERR_TLS_REQD,
                    "this server requires TLS: begin with NBD_OPT_STARTTLS",
                );
            }
            OptionType::LIST => {
                if none_expected(data, &mut answer) {
                    match entries(0, exports, answer.out) {
                        next if next < exports.len() => self.phase = Phase::List { next },
                        _ => answer.ack(),
                    }
                }
            }
            OptionType::INFO | OptionType::GO => return Ok(self.info(data, exports, answer)),
            OptionType::STRUCTURED_REPLY => self.structured_reply(data, answer),
            OptionType::EXTENDED_HEADERS => self.extended_headers(data, answer),
            OptionType::LIST_META_CONTEXT | OptionType::SET_META_CONTEXT => {
                self.meta_context(data, exports, answer);
            }
            _ => answer.error(OptionReply::ERR_UNSUP, "unknown option"),
        }
        Ok(None)
    }

    fn export_name(
        &mut self,
        data: Data<'_>,
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        let Data::Whole(name) = data else {
            return Err(Fault::ExportName);
        };
        let index = find(exports, name).ok_or(Fault::ExportName)?;
        if self.is_full {
            self.was_refused = true;
            return Err(Fault::ExportName);
        }
        let export = &exports[index];
        out.extend_from_slice(&export.size.to_be_bytes());
        out.extend_from_slice(&self.flags(export).into_bits().to_be_bytes());
        if !self.client.no_zeroes() {
            out.extend_from_slice(&RESERVED);
        }
        Ok(self.transmission(index, export))
    }

    fn start_tls(
        &mut self,
        data: Data<'_>,
        input: &[u8],
        mut answer: Answer<'_>,
    ) -> Result<Option<Outcome>, Fault> {
        if !none_expected(data, &mut answer) {
            return Ok(None);
        }
        match self.tls {
            Tls::Unavailable => {
                answer.error(OptionReply::ERR_POLICY, "this server has no TLS");
            }
            Tls::Done => {
                answer.error(
                    OptionReply::ERR_INVALID,
                    "the connection goes through TLS already",
                );
            }
            Tls::Offered | Tls::Required => {
                // They would be read as if they came encrypted.
                if !input.is_empty() {
                    return Err(Fault::ClearBytes);
                }
                self.phase = Phase::Handshake;
                answer.ack();
                return Ok(Some(Outcome::StartTls));
            }
        }
        Ok(None)
    }

    fn info(
        &mut self,
        data: Data<'_>,
        exports: &[Export],
        mut answer: Answer<'_>,
    ) -> Option<Outcome> {
        let info = parsed(data, Info::parse, &mut answer)?;
        let Some(index) = find(exports, info.name) else {
            unknown(&mut answer);
            return None;
        };
        if self.is_full && answer.option == OptionType::GO {
            self.was_refused = true;
            answer.error(
                OptionReply::ERR_POLICY,
                "the server has as many clients as it takes",
            );
            return None;
        }
        let export = &exports[index];
        answer.info_export(export.size, self.flags(export).into_bits());
        for request in [InfoType::NAME, InfoType::DESCRIPTION, InfoType::BLOCK_SIZE] {
            if info.requests(request) {
                answer.requested(request, export);
            }
        }
        answer.ack();
        (answer.option == OptionType::GO).then(|| self.transmission(index, export))
    }

    fn structured_reply(&mut self, data: Data<'_>, mut answer: Answer<'_>) {
        if !none_expected(data, &mut answer) {
            return;
        }
        if self.state.extended {
            answer.error(
                OptionReply::ERR_EXT_HEADER_REQD,
                "extended headers are in use, which include structured replies",
            );
        } else if self.state.structured {
            answer.error(
                OptionReply::ERR_INVALID,
                "structured replies are in use already",
            );
        } else {
            self.state.structured = true;
            answer.ack();
        }
    }

    fn extended_headers(&mut self, data: Data<'_>, mut answer: Answer<'_>) {
        if !none_expected(data, &mut answer) {
            return;
        }
        if self.state.extended {
            answer.error(
                OptionReply::ERR_INVALID,
                "extended headers are in use already",
            );
        } else {
            self.state.structured = true;
            self.state.extended = true;
            answer.ack();
        }
    }

    fn meta_context(&mut self, data: Data<'_>, exports: &[Export], mut answer: Answer<'_>) {
        let set = answer.option == OptionType::SET_META_CONTEXT;
        if set {
            // Also where it fails.
            self.state.allocation = None;
            if !self.state.structured {
                answer.error(
                    OptionReply::ERR_INVALID,
                    "metadata contexts need structured replies: negotiate those first",
                );
                return;
            }
        }
        let Some(contexts) = parsed(data, Contexts::parse, &mut answer) else {
            return;
        };
        let Some(index) = find(exports, contexts.name) else {
            return unknown(&mut answer);
        };
        let export = &exports[index];
        if export.allocation {
            if set && contexts.allocation {
                self.state.allocation = Some(export.name.clone());
                answer.base_allocation(BASE_ALLOCATION_ID);
            } else if !set && (contexts.none || contexts.wildcard || contexts.allocation) {
                answer.base_allocation(0);
            }
        }
        answer.ack();
    }

    /// Whether the client has set `base:allocation` of this export.
    fn allocation(&self, export: &Export) -> bool {
        export.allocation && self.state.allocation.as_ref() == Some(&export.name)
    }

    /// Flags of an export for this client.
    fn flags(&self, export: &Export) -> TransmissionFlags {
        let filter = export.flags.block_status_payload();
        export
            .flags
            .with_has_flags(true)
            .with_send_df(self.state.structured)
            .with_block_status_payload(filter && self.state.extended && self.allocation(export))
    }

    fn transmission(&mut self, index: usize, export: &Export) -> Outcome {
        self.phase = Phase::Ended;
        Outcome::Transmission(Agreed {
            export: index,
            structured: self.state.structured,
            extended: self.state.extended,
            allocation: self.allocation(export),
        })
    }
}

/// Appends entries of the list of exports from `first` on, until the answer pauses, and returns the
/// next one.
fn entries(first: usize, exports: &[Export], out: &mut Vec<u8>) -> usize {
    let before = out.len();
    for (index, export) in exports.iter().enumerate().skip(first) {
        if out.len() - before >= MAX_ANSWER {
            return index;
        }
        listing(out).server(export);
    }
    exports.len()
}

/// The answer to `NBD_OPT_LIST`.
fn listing(out: &mut Vec<u8>) -> Answer<'_> {
    Answer {
        option: OptionType::LIST,
        out,
    }
}

/// A length that came, where it may be used. No address space of ours is smaller.
fn bytes(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Whether there are no data; otherwise answers that there are.
fn none_expected(data: Data<'_>, answer: &mut Answer<'_>) -> bool {
    let empty = data.is_empty();
    if !empty {
        answer.error(OptionReply::ERR_INVALID, "this option has no data");
    }
    empty
}

/// The data of an option; `None` where they are answered with an error.
fn parsed<'a, T>(
    data: Data<'a>,
    parse: fn(&'a [u8]) -> Option<T>,
    answer: &mut Answer<'_>,
) -> Option<T> {
    let Data::Whole(data) = data else {
        answer.error(
            OptionReply::ERR_TOO_BIG,
            "this server takes at most 8192 bytes of data of an option",
        );
        return None;
    };
    let parsed = parse(data);
    if parsed.is_none() {
        answer.error(
            OptionReply::ERR_INVALID,
            "the lengths in the data of this option are wrong",
        );
    }
    parsed
}

fn unknown(answer: &mut Answer<'_>) {
    answer.error(
        OptionReply::ERR_UNKNOWN,
        "unknown export; NBD_OPT_LIST names those of this server",
    );
}

#[cfg(test)]
mod tests;
