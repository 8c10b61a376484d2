//! Parameters and commands as JSON: what the two sides share, and nothing else.
//!
//! The names are those of [`model::Parameters`].

use model::{
    Arithmetic, CollectionPolicy, CompoundRule, Direction, FlashExtras, FlashParameters, KvKind,
    KvOp, KvParameters, NvmParameters, Op, Parameters, ZoneOp, ZonesParameters,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parameters and the commands that a drive of them is given.
#[derive(Clone, Debug, Deserialize)]
pub struct Document {
    /// Of the drive.
    #[serde(with = "ParametersJson")]
    pub parameters: Parameters,
    /// With ids that rise with their times.
    pub commands: Vec<Command>,
    /// Other parameters while it works, by their times.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// Other parameters from some time on.
#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// When, in nanoseconds.
    pub t: u64,
    /// All of them.
    #[serde(with = "ParametersJson")]
    pub parameters: Parameters,
}

/// [`Parameters`] that become JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Drive(#[serde(with = "ParametersJson")] pub Parameters);

/// A command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Rises with `t`, and within it.
    pub id: u64,
    /// When it arrives, in nanoseconds.
    pub t: u64,
    /// Commands of one stream are admitted in their order.
    pub stream: u64,
    /// Its request.
    #[serde(flatten)]
    pub ask: Ask,
}

/// Request of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Ask {
    /// [`Op::Read`]
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// [`Op::Write`]
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// Forced to flash.
        fua: bool,
    },
    /// [`Op::Deallocate`]
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// [`Op::Flush`]
    Flush,
    /// [`Op::Zone`]
    Zone {
        /// Which operation.
        action: Action,
        /// Which zone.
        zone: u32,
    },
    /// [`Op::Kv`]
    Kv(Part),
    /// [`Op::Compound`]
    Compound {
        /// Its sub-commands.
        parts: Vec<Part>,
    },
}

/// Action on a zone.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are those of model::ZoneOp")]
pub enum Action {
    Reset,
    Finish,
    Open,
    Close,
}

/// One key-value operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    #[serde(with = "KvKindJson")]
    pub kind: KvKind,
    /// In hexadecimal digits.
    pub key: String,
    /// Bytes of the value.
    pub len: u32,
}

impl Part {
    fn op(&self) -> KvOp {
        let hash = match self.kind {
            KvKind::List => 0,
            _ => fnv1a32(&self.key),
        };
        KvOp {
            kind: self.kind,
            hash,
            len: self.len,
        }
    }
}

/// FNV-1a of the bytes that the hexadecimal digits say.
fn fnv1a32(key: &str) -> u32 {
    let bytes = (0..key.len() / 2).filter_map(|i| u8::from_str_radix(&key[2 * i..][..2], 16).ok());
    bytes.fold(2_166_136_261, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

impl Ask {
    /// The same for a model; `parts` is where the sub-commands of a compound command are.
    pub fn op<'a>(&self, parts: &'a mut Vec<KvOp>) -> Op<'a> {
        match *self {
            Ask::Read { offset, len } => Op::Read { offset, len },
            Ask::Write { offset, len, fua } => Op::Write { offset, len, fua },
            Ask::Deallocate { offset, len } => Op::Deallocate { offset, len },
            Ask::Flush => Op::Flush,
            Ask::Zone { action, zone } => Op::Zone(match action {
                Action::Reset => ZoneOp::Reset { zone },
                Action::Finish => ZoneOp::Finish { zone },
                Action::Open => ZoneOp::Open { zone },
                Action::Close => ZoneOp::Close { zone },
            }),
            Ask::Kv(ref part) => Op::Kv(part.op()),
            Ask::Compound { parts: ref asked } => {
                parts.clear();
                parts.extend(asked.iter().map(Part::op));
                Op::Compound(parts)
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "KvKind", rename_all = "snake_case")]
enum KvKindJson {
    Store,
    Append,
    Retrieve,
    Delete,
    Exist,
    List,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Parameters", tag = "kind", rename_all = "snake_case")]
enum ParametersJson {
    Nvm(#[serde(with = "NvmJson")] NvmParameters),
    Kv(#[serde(with = "KvJson")] KvParameters),
    Flash(#[serde(with = "FlashJson")] FlashParameters),
    #[serde(rename = "zns")]
    Zones(#[serde(with = "ZonesJson")] ZonesParameters),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Direction")]
struct DirectionJson {
    latency_ns: u64,
    bandwidth_bytes_per_s: u64,
    rate_per_s: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Arithmetic", rename_all = "snake_case")]
enum ArithmeticJson {
    Exact,
    Code,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NvmParameters")]
struct NvmJson {
    #[serde(default, with = "ArithmeticJson")]
    arithmetic: Arithmetic,
    #[serde(with = "DirectionJson")]
    read: Direction,
    #[serde(with = "DirectionJson")]
    write: Direction,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CompoundRule", rename_all = "snake_case")]
enum CompoundJson {
    Together,
    InOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "KvParameters")]
struct KvJson {
    #[serde(default, with = "ArithmeticJson")]
    arithmetic: Arithmetic,
    units: u32,
    #[serde(with = "DirectionJson")]
    read: Direction,
    #[serde(with = "DirectionJson")]
    write: Direction,
    delete_latency_ns: u64,
    exist_latency_ns: u64,
    list_latency_ns: u64,
    #[serde(with = "CompoundJson")]
    compound: CompoundRule,
}

/// A policy by its word in a configuration, which the oracle has, too.
struct PolicyJson;

impl PolicyJson {
    fn serialize<S: Serializer>(
        policy: &CollectionPolicy,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut all = CollectionPolicy::ALL.iter().zip(CollectionPolicy::WORDS);
        let word = all.find(|(one, _)| *one == policy).map(|(_, word)| *word);
        serializer.serialize_str(word.unwrap_or_default())
    }

    fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<CollectionPolicy, D::Error> {
        let given = String::deserialize(deserializer)?;
        let mut all = CollectionPolicy::ALL.iter().zip(CollectionPolicy::WORDS);
        let found = all.find(|(_, word)| **word == given);
        let found = found.map(|(policy, _)| *policy);
        found.ok_or_else(|| D::Error::custom(format!("there is no policy {given}")))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FlashParameters")]
struct FlashJson {
    #[serde(default, with = "ArithmeticJson")]
    arithmetic: Arithmetic,
    size_bytes: u64,
    partitions: u32,
    channels: u32,
    dies_per_channel: u32,
    flash_page_bytes: u32,
    oneshot_bytes: u32,
    block_bytes: u64,
    cell_bits: u8,
    overprovisioning_permille: u32,
    read_4k_ns: [u64; 4],
    read_ns: [u64; 4],
    program_ns: u64,
    erase_ns: u64,
    channel_bandwidth_bytes_per_s: u64,
    max_channel_transfer_bytes: u32,
    firmware_channel_transfer_ns: u64,
    link_bandwidth_bytes_per_s: u64,
    firmware_read_4k_ns: u64,
    firmware_read_ns: u64,
    buffer_bytes: u64,
    buffer_base_ns: u64,
    buffer_per_page_ns: u64,
    early_completion: bool,
    deallocate_ns: u64,
    collect_below: u32,
    #[serde(with = "PolicyJson")]
    policy: CollectionPolicy,
    #[serde(default, with = "ExtrasJson")]
    extras: FlashExtras,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FlashExtras")]
struct ExtrasJson {
    #[serde(default)]
    background_below: u32,
    #[serde(default)]
    background_idle_ns: u64,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    read_jitter_permille: u32,
    #[serde(default)]
    program_jitter_permille: u32,
    #[serde(default)]
    erase_jitter_permille: u32,
    #[serde(default)]
    read_retry_ppm: u32,
    #[serde(default = "one")]
    planes: u32,
    #[serde(default)]
    suspend_limit: u32,
    #[serde(default)]
    suspend_ns: u64,
    #[serde(default)]
    resume_ns: u64,
    #[serde(default)]
    slc_cache_bytes: u64,
    #[serde(default)]
    slc_program_ns: u64,
    #[serde(default)]
    slc_read_ns: u64,
    #[serde(default)]
    slc_idle_ns: u64,
    #[serde(default)]
    map_cache_pages: u32,
}

fn one() -> u32 {
    1
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ZonesParameters")]
struct ZonesJson {
    #[serde(with = "FlashJson")]
    flash: FlashParameters,
    zone_size_bytes: u64,
    zone_capacity_bytes: u64,
    dies_per_zone: u32,
    zone_buffer_bytes: u64,
    reset_ns: u64,
    finish_ns: u64,
    finish_writes: bool,
    open_ns: u64,
}
