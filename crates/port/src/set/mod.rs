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
//! Commands that a set does not claim belong to the NVM command set, and reach the medium like any
//! medium's requests. A new set, or a vendor's extension, is a type that implements the trait, in
//! one file, and a medium that executes the commands; the controller knows none by name. One is a
//! part of each namespace ([`Namespace::set`]) that uses it.
//!
//! Invariants:
//! - A command is examined once, in its copy; a set sees no memory of the host's.
//! - Plain reads and writes (opcodes 01h and 02h) of a namespace that has logical blocks do not
//!   pass through here: they are the NVM command set's. A set that gives these opcodes another
//!   meaning is for namespaces without blocks ([`Namespace::blocks`] is 0), in which no block is
//!   ever inside.
//!
//! A format or a sanitize operation does not use a set's commands: its medium receives
//! [`Request::Renew`](crate::Request::Renew).
//!
//! It does NOT keep a state of a namespace, nor check conditions that depend on one.

mod zoned;

use std::fmt;

use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::{Sqe, Status};

pub use self::zoned::{RandomAreas, Zoned};
use crate::namespace::Namespace;

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

/// A command set, or a vendor's extension of one, as the controller sees it. See the module.
pub trait CommandSet: fmt::Debug + Send + Sync {
    /// The command set that its namespaces report. For an extension, that of the set it extends.
    fn csi(&self) -> Csi;

    /// Decodes a command of this set. `None`: it is the NVM command set's, and is processed as
    /// such.
    ///
    /// Fused commands do not come here; those with reserved flags are refused if the command is one
    /// of this set.
    ///
    /// # Errors
    /// What it ends with: a field that cannot be whatever the namespace's state is, or an opcode of
    /// the NVM command set that this set does not have.
    fn command(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Option<Asked>, Status>;

    /// Name of a command of this set; `None` for one of the NVM command set's.
    fn opcode_name(&self, _opcode: u8) -> Option<&'static str> {
        None
    }

    /// Entry of an I/O command in the log of effects; `None` if there is no such command. An
    /// extension returns only its additions.
    fn effects(&self, opcode: u8) -> Option<CommandEffects>;

    /// Identify Namespace of the command set (CNS 05h); not asked of extensions.
    fn identify_namespace(&self, _namespace: &Namespace) -> Box<[u8; IDENTIFY_SIZE]> {
        Box::new([0; IDENTIFY_SIZE])
    }

    /// Identify Controller of the command set (CNS 06h); not asked of extensions.
    fn identify_controller(&self) -> Box<[u8; IDENTIFY_SIZE]> {
        Box::new([0; IDENTIFY_SIZE])
    }

    /// The first block of the zone of a block, for reporting if the medium could not write there
    /// and the zone has changed (Changed Zone List); `None` if there are no zones.
    fn zone_of(&self, _namespace: &Namespace, _lba: u64) -> Option<u64> {
        None
    }

    /// Whether its namespaces have logical blocks, which the structures of the NVM command set
    /// describe, too.
    fn has_blocks(&self) -> bool {
        true
    }
}

/// Two are the same where they are one object: each medium has its own.
impl PartialEq for dyn CommandSet {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn CommandSet {}

/// Properties of a command of a set that the controller must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its access to the contents.
    pub access: Access,
    /// Its data.
    pub data: Data,
}

/// A command's access to a namespace's contents: the input of reservations and write protection
/// (Base 2.1, 8.1.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Reads,
    /// It changes something.
    Changes,
}

/// The data of a command, and which way it goes. Lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    Nothing,
    /// The medium reads so many from the host's memory; not 0.
    FromHost(u64),
    /// The medium writes at most so many to the host's memory; not 0.
    ToHost(u64),
}
