//! NVMe over TCP: codec and framing for both sides of a connection.
//!
//! The reading order is [`Fault`] (what a peer may do wrong), [`Offer`] and [`Agreement`] (the
//! first PDU of each side), [`Decoder`] (bytes become events), [`Encoder`] (events become bytes),
//! and [`Transfer`] (which data of a command may come next). The layouts are in `nvme_spec::tcp`.
//!
//! Invariants:
//! - Nothing that a peer sends panics or allocates. The length of a PDU is known to be within its
//!   limit before the first byte of its data is handed on.
//! - Lengths are exact: a header, its padding, its data and its digests add up to PLEN, or the
//!   connection ends.
//! - A decoder hands on the same events however the bytes are cut into pieces.
//!
//! Not included: sockets, clocks, buffers of data, and commands: whether a capsule with these data
//! makes sense is for its receiver to judge.
//!
//! Section names in comments are those of the NVMe/TCP transport specification 1.1 ("TCP 1.1").

#![forbid(unsafe_code)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_lossless
)]

mod agreement;
mod decoder;
mod digest;
mod encoder;
mod fault;
mod header;
mod transfer;

pub use agreement::{Agreement, Offer};
pub use decoder::{Decoder, Event};
pub use digest::DataDigest;
pub use encoder::{Encoder, Head};
pub use fault::Fault;
pub use transfer::{Piece, Pieces, Transfer};

/// Which side of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The initiator: it sends ICReq, command capsules and H2CData.
    Host,
    /// The target: it sends ICResp, response capsules, C2HData and R2T.
    Controller,
}
