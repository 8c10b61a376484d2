//! The required outcome of a command. Statuses are numbers: the type in the upper byte, the code in
//! the
//! lower (Base 2.1, 4.2.3).

mod admin;
mod blocks;
mod features;

use std::collections::{BTreeMap, VecDeque};

pub use blocks::{Namespace, Unsure};
pub use features::{Facts as FeatureFacts, Features, Key, key as features_key};

use crate::{NAMESPACE_LIMIT, NAMESPACES, QUEUE_DEPTH, QUEUES};

/// Invalid Command Opcode.
pub const INVALID_OPCODE: u16 = 0x001;
/// Invalid Field in Command.
pub const INVALID_FIELD: u16 = 0x002;
/// Data Transfer Error.
pub const DATA_TRANSFER: u16 = 0x004;
/// Command Abort Requested.
pub const ABORT_REQUESTED: u16 = 0x007;
/// Command Aborted due to Failed Fused Command.
pub const FAILED_FUSED: u16 = 0x009;
/// Invalid Namespace or Format.
pub const INVALID_NAMESPACE: u16 = 0x00b;
/// Command Sequence Error.
pub const SEQUENCE: u16 = 0x00c;
/// Data SGL Length Invalid.
pub const SGL_LENGTH: u16 = 0x00f;
/// PRP Offset Invalid.
pub const PRP_OFFSET: u16 = 0x013;
/// LBA Out of Range.
pub const OUT_OF_RANGE: u16 = 0x080;
/// Completion Queue Invalid.
pub const CQ_INVALID: u16 = 0x100;
/// Invalid Queue Identifier.
pub const INVALID_QUEUE: u16 = 0x101;
/// Invalid Queue Size.
pub const INVALID_SIZE: u16 = 0x102;
/// Asynchronous Event Request Limit Exceeded.
pub const EVENT_LIMIT: u16 = 0x105;
/// Invalid Interrupt Vector.
pub const INVALID_VECTOR: u16 = 0x108;
/// Invalid Log Page.
pub const INVALID_LOG: u16 = 0x109;
/// Invalid Format.
pub const INVALID_FORMAT: u16 = 0x10a;
/// Invalid Queue Deletion.
pub const INVALID_DELETION: u16 = 0x10c;
/// Feature Identifier Not Saveable.
pub const NOT_SAVEABLE: u16 = 0x10d;
/// Feature Not Namespace Specific.
pub const NOT_NAMESPACE_SPECIFIC: u16 = 0x10f;
/// Command Size Limit Exceeded, of the NVM command set.
pub const SIZE_LIMIT: u16 = 0x183;
/// Unrecovered Read Error.
pub const UNRECOVERED: u16 = 0x281;
/// Compare Failure.
pub const COMPARE_FAILURE: u16 = 0x285;

/// Properties that a drive reports once and keeps: a host may rely on them, and so does the model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Identify Controller.
    pub controller: Vec<u8>,
    /// Sizes of blocks by format, as powers of two.
    pub formats: Vec<u8>,
    /// Ranges, blocks of a range, and blocks of all that a Copy may name.
    pub copy_limits: (u32, u32, u32),
    /// The features.
    pub features: FeatureFacts,
    /// Log pages that do not change.
    pub logs: BTreeMap<u8, Vec<u8>>,
}

/// The required outcome of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Any of these errors; success where there are none.
    pub errors: Vec<u16>,
    /// Dword 0 of a success, where it is defined.
    pub dw0: Option<u32>,
    /// Data that a success transfers to the host, from these bytes on; bytes that are not here may
    /// be anything.
    pub data: Vec<(usize, Vec<u8>)>,
}

impl Verdict {
    /// Success, of which nothing more is known.
    #[must_use]
    pub fn success() -> Self {
        Self::default()
    }

    /// One of these errors, or success where there are none.
    #[must_use]
    pub fn of(errors: Vec<u16>) -> Self {
        Verdict {
            errors,
            ..Self::default()
        }
    }

    /// Whether the command must succeed.
    #[must_use]
    pub fn succeeds(&self) -> bool {
        self.errors.is_empty()
    }

    /// Judges a status and Dword 0.
    ///
    /// # Errors
    /// In words, what is not as it must be.
    pub fn judge(&self, status: u16, dw0: u32) -> Result<(), String> {
        let expected = match &self.errors[..] {
            [] => "success".to_owned(),
            errors => format!("one of {errors:#05x?}").replace("\n", ""),
        };
        let is_right = match status {
            0 => self.succeeds(),
            status => self.errors.contains(&status),
        };
        if !is_right {
            return Err(format!(
                "its status is {status:#05x}, and must be {expected}"
            ));
        }
        match self.dw0 {
            Some(wanted) if self.succeeds() && wanted != dw0 => {
                Err(format!("its dword 0 is {dw0:#x}, and must be {wanted:#x}"))
            }
            _ => Ok(()),
        }
    }
}

/// A controller, as far as its host can tell.
#[derive(Clone, Debug)]
pub struct Model {
    /// Properties that it reports.
    pub facts: Facts,
    /// The namespaces that are attached.
    pub namespaces: BTreeMap<u32, Namespace>,
    /// I/O completion queues.
    pub cqs: BTreeMap<u16, u32>,
    /// I/O submission queues, with their size and completion queue.
    pub sqs: BTreeMap<u16, (u32, u16)>,
    /// The features.
    pub features: Features,
    /// Event requests that are held, oldest first.
    pub held: VecDeque<u16>,
}

impl Model {
    /// A drive as it comes.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        let features = Features::new(&facts.features);
        let namespaces = NAMESPACES.map(|(nsid, _, bytes, shift)| {
            let namespace = Namespace::new(bytes as usize, shift);
            (nsid, namespace)
        });
        Model {
            facts,
            namespaces: namespaces.into(),
            cqs: BTreeMap::new(),
            sqs: BTreeMap::new(),
            features,
            held: VecDeque::new(),
        }
    }

    /// A Controller Level Reset (Base 2.1, 3.7.2): queues and held requests are gone, features have
    /// their saved values, data stays.
    pub fn reset(&mut self) {
        self.cqs.clear();
        self.sqs.clear();
        self.held.clear();
        self.features.reset();
    }

    /// The errors of a command's namespace (Base 2.1, 3.2.1.3 to 3.2.1.5).
    fn namespace_errors(&self, nsid: u32) -> Vec<u16> {
        match nsid {
            _ if self.namespaces.contains_key(&nsid) => vec![],
            // The broadcast value, where a command does not take it.
            u32::MAX => vec![INVALID_NAMESPACE, INVALID_FIELD],
            _ if is_valid(nsid) => vec![INVALID_FIELD],
            _ => vec![INVALID_NAMESPACE],
        }
    }

    /// Interrupt vectors: one for each pair and the admin queue's.
    fn vectors(&self) -> u16 {
        QUEUES + 1
    }

    /// The largest queue, 0's based (CAP.MQES).
    fn size_max_z(&self) -> u16 {
        QUEUE_DEPTH - 1
    }
}

/// Whether a namespace may have this identifier.
fn is_valid(nsid: u32) -> bool {
    (1..=NAMESPACE_LIMIT).contains(&nsid)
}
