//! Replies to options.

use crate::Export;
use crate::bytes::cut;
use crate::constants::{
    BASE_ALLOCATION, InfoType, MAX_STRING, OPTION_REPLY_MAGIC, OptionReply, OptionType,
};

/// Appends the replies to one option.
pub(super) struct Answer<'a> {
    pub(super) option: OptionType,
    pub(super) out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    /// One reply, whose data are these pieces, joined.
    fn reply(&mut self, reply: OptionReply, data: &[&[u8]]) {
        let len: usize = data.iter().map(|piece| piece.len()).sum();
        self.out
            .extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&self.option.0.to_be_bytes());
        self.out.extend_from_slice(&reply.0.to_be_bytes());
        self.out.extend_from_slice(&length(len).to_be_bytes());
        for piece in data {
            self.out.extend_from_slice(piece);
        }
    }

    /// Success, and the end of the replies.
    pub(super) fn ack(&mut self) {
        self.reply(OptionReply::ACK, &[]);
    }

    /// An error, and the end of the replies.
    pub(super) fn error(&mut self, error: OptionReply, message: &str) {
        self.reply(error, &[message.as_bytes()]);
    }

    /// An entry of the list of exports.
    pub(super) fn server(&mut self, export: &Export) {
        let name = export.name.as_bytes();
        let description = cut(&export.description, MAX_STRING).as_bytes();
        let len = length(name.len()).to_be_bytes();
        self.reply(OptionReply::SERVER, &[&len, name, description]);
    }

    /// Size and flags of an export.
    pub(super) fn info_export(&mut self, size: u64, flags: u16) {
        self.info(
            InfoType::EXPORT,
            &[&size.to_be_bytes()[..], &flags.to_be_bytes()].concat(),
        );
    }

    /// Information that a client has asked for about an export, where it is known.
    pub(super) fn requested(&mut self, info: InfoType, export: &Export) {
        match info {
            InfoType::NAME => self.info(info, export.name.as_bytes()),
            InfoType::DESCRIPTION if !export.description.is_empty() => {
                self.info(info, cut(&export.description, MAX_STRING).as_bytes());
            }
            InfoType::BLOCK_SIZE => {
                let sizes = [
                    export.block.minimum,
                    export.block.preferred,
                    export.block.maximum,
                ];
                self.info(info, &sizes.map(u32::to_be_bytes).concat());
            }
            _ => {}
        }
    }

    fn info(&mut self, info: InfoType, data: &[u8]) {
        self.reply(OptionReply::INFO, &[&info.0.to_be_bytes(), data]);
    }

    /// The metadata context `base:allocation`.
    pub(super) fn base_allocation(&mut self, id: u32) {
        let id = id.to_be_bytes();
        self.reply(
            OptionReply::META_CONTEXT,
            &[&id, BASE_ALLOCATION.as_bytes()],
        );
    }
}

/// A length of a reply, which has a name and a description at most.
fn length(len: usize) -> u32 {
    u32::try_from(len).expect("names and descriptions have a few thousand bytes")
}
