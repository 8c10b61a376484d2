//! Requests before anything is done: is this one, and may it be?

use nbd::{Command, CommandFlags, Errno, Request};

use super::offer::{MAX_DATA, Offer};
use super::requests::Kind;

/// Purpose of a request.
///
/// # Errors
/// The error of its reply.
pub(super) fn judge(asked: &Request, offer: &Offer, style: Agreed) -> Result<Kind, Errno> {
    let (flags, export) = (asked.flags, &offer.export);
    let mut allowed = CommandFlags::new().with_fua(true);
    let kind = match asked.command {
        Command::READ => {
            allowed.set_df(style.has_chunks);
            Kind::Read
        }
        Command::WRITE => {
            allowed.set_payload_len(style.is_extended);
            Kind::Write
        }
        Command::FLUSH => Kind::Flush,
        Command::TRIM => Kind::Trim,
        Command::CACHE => Kind::Cache,
        Command::WRITE_ZEROES => {
            allowed.set_no_hole(true);
            allowed.set_fast_zero(export.flags.send_fast_zero());
            // Zeroes that are stored take as long as other data.
            if flags.fast_zero() && flags.no_hole() && allowed.fast_zero() {
                return Err(Errno::NOT_SUPPORTED);
            }
            Kind::Zero {
                deallocates: !flags.no_hole(),
            }
        }
        Command::BLOCK_STATUS if style.has_allocation && asked.len > 0 => {
            allowed.set_req_one(true);
            Kind::Status {
                is_one: flags.req_one(),
            }
        }
        _ => return Err(Errno::INVALID),
    };
    if flags.into_bits() & !allowed.into_bits() != 0 {
        return Err(Errno::INVALID);
    }
    let changes = matches!(kind, Kind::Write | Kind::Trim | Kind::Zero { .. });
    if changes && export.flags.read_only() {
        return Err(Errno::PERM);
    }
    if kind == Kind::Flush {
        // Its offset and length are reserved.
        return Ok(kind);
    }
    let end = asked.offset.checked_add(asked.len);
    if end.is_none_or(|end| end > export.size) {
        let grows = matches!(kind, Kind::Write | Kind::Zero { .. });
        return Err(if grows {
            Errno::NO_SPACE
        } else {
            Errno::INVALID
        });
    }
    if kind == Kind::Read && asked.len > u64::from(MAX_DATA) {
        return Err(Errno::INVALID);
    }
    Ok(kind)
}

/// Parameters that a connection has agreed on, as far as requests depend on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// Replies are chunks.
    pub(super) has_chunks: bool,
    /// Headers are extended.
    pub(super) is_extended: bool,
    /// The client has selected `base:allocation`.
    pub(super) has_allocation: bool,
}
