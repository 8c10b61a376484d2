//! The fuzz targets: hosts, clients of the socket and files that may say anything.
//!
//! Each target is a function that takes any bytes. It panics where they break a rule, and returns
//! whether they decode to an input of the target. `tests/corpus.rs` replays the committed inputs
//! (`fuzz/corpus`) in an ordinary build. The search for more of them is not here: `fuzz/`, a
//! workspace of its own, builds these functions for libFuzzer (`cargo xtask fuzz`).

#![allow(
    clippy::unwrap_used,
    reason = "a target that panics has found something"
)]

mod authentication;
mod gate;
mod mediated;
mod moved_state;
mod nbd_client;
mod nbd_negotiation;
mod prp_walk;
mod rig;
mod session_bytes;
mod sgl_walk;
mod sqe_program;
mod state_area;
mod tcp_host;
mod tcp_stream;
mod tcp_target;
mod tls_hello;
mod trace_file;
// The double of the driver that sessions are tested with.
#[path = "../../../crates/transport/tests/transport/ublk/kernel.rs"]
mod ublk_kernel;
mod ublk_session;
mod vhost_session;

use arbitrary::{Arbitrary, Unstructured};

/// Defines a target by its module: it decodes the bytes as libFuzzer's own macro does, and runs
/// them.
macro_rules! targets {
    ($($(#[$doc:meta])* $target:ident)*) => {$(
        $(#[$doc])*
        pub fn $target(bytes: &[u8]) -> bool {
            decoded(bytes).map($target::run).is_some()
        }
    )*};
}

targets! {
    /// A peer that does not know the secret sends messages of authentication.
    authentication
    /// A host that shares a drive with another one does anything.
    mediated
    /// A controller takes a state that a client has changed.
    moved_state
    /// Clients of one export over NBD do anything, against a plain array.
    nbd_client
    /// A client of NBD sends anything, against a reader of the whole stream.
    nbd_negotiation
    /// PRP walks, against a walk that goes byte by byte.
    prp_walk
    /// A client of the socket sends anything.
    session_bytes
    /// SGL walks, against a walk that goes descriptor by descriptor and byte by byte.
    sgl_walk
    /// A host writes any registers, doorbells, queue entries and memory.
    sqe_program
    /// Files with the log of a medium's state have any content.
    state_area
    /// A target of NVMe/TCP sends our host anything.
    tcp_host
    /// A peer of an NVMe/TCP connection sends anything, against a reader of the whole stream.
    tcp_stream
    /// A host of an NVMe/TCP target sends anything.
    tcp_target
    /// One that has no key of TLS connects to a target that asks for one.
    tls_hello
    /// Files with traces have any content.
    trace_file
    /// The driver of a block device makes any requests, against a plain array.
    ublk_session
    /// A front end of a vhost-user-blk device sends anything, and its guest writes anything.
    vhost_session
}

fn decoded<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    if bytes.len() < T::size_hint(0).0 {
        return None;
    }
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}
