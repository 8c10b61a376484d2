//! I/O command sets beside the NVM command set, and vendors' commands.
//!
//! A namespace whose medium has more than bytes (zones, keys) carries a [`CommandSet`]. It
//! describes the properties of a command that the controller needs before it passes the command on:
//! the direction and length of its data, and whether it reads or changes the medium. It also
//! describes the data of Identify and the log of effects. It does not describe the *effect* of a
//! command: that is the medium's, which gets it as
//! [`Request::Command`](crate::Request::Command) with the data translated, and answers with
//! its own status and result ([`Outcome`](crate::Outcome)).
//!
//! Whatever a set does not claim is the NVM command set's, and reaches the medium as any medium's
//! requests do. A new set, or a vendor's extension, is a type that implements the trait, in one
//! file, and a medium that does the commands; the controller knows none by name. One is a part of
//! each namespace ([`Namespace::set`](crate::namespace::Namespace::set)) that speaks it.
//!
//! Invariants:
//! - A command is examined once, in its copy; a set sees no memory of the host's.
//! - Plain reads and writes (opcodes 01h and 02h) of a namespace that has logical blocks do not
//!   pass by here: they are the NVM command set's. A set that means something else by them is that
//!   of namespaces without blocks (its `blocks` is 0), in which no block is ever inside.
//!
//! A format or a sanitize operation does not use a set's commands: its medium receives
//! [`Request::Renew`](crate::Request::Renew).
//!
//! It does NOT keep a state of a namespace, nor check conditions that depend on one.

mod zoned;

use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::NvmOpcode;

pub use self::zoned::{RandomAreas, Zoned};
pub use crate::namespace::{Access, Asked, CommandSet, Data};

/// Commands of the NVM command set that controllers execute.
const NVM: [NvmOpcode; 13] = [
    NvmOpcode::READ,
    NvmOpcode::WRITE,
    NvmOpcode::FLUSH,
    NvmOpcode::COMPARE,
    NvmOpcode::WRITE_ZEROES,
    NvmOpcode::WRITE_UNCORRECTABLE,
    NvmOpcode::DATASET_MANAGEMENT,
    NvmOpcode::VERIFY,
    NvmOpcode::COPY,
    NvmOpcode::RESERVATION_REGISTER,
    NvmOpcode::RESERVATION_ACQUIRE,
    NvmOpcode::RESERVATION_RELEASE,
    NvmOpcode::RESERVATION_REPORT,
];

/// The effects of a command of the NVM command set; `None` for an opcode that no controller here
/// executes, whatever its fields say.
#[must_use]
pub fn nvm_effects(opcode: u8) -> Option<CommandEffects> {
    let opcode = NvmOpcode(opcode);
    let writes = [
        NvmOpcode::WRITE,
        NvmOpcode::WRITE_UNCORRECTABLE,
        NvmOpcode::WRITE_ZEROES,
        NvmOpcode::DATASET_MANAGEMENT,
        NvmOpcode::COPY,
    ];
    // No scope: Linux takes any effect but LBCC of an I/O command for an unusual one, and says so
    // once.
    let effects = CommandEffects::new().with_csupp(true);
    let is_known = NVM.contains(&opcode);
    is_known.then(|| effects.with_lbcc(writes.contains(&opcode)))
}
