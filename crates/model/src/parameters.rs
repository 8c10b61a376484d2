//! Parameters of a model. All numbers are whole; the unit is in the name.

/// Everything about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// Low-latency non-volatile memory.
    Nvm(NvmParameters),
    /// Key-value.
    Kv(KvParameters),
    /// Conventional flash.
    Flash(FlashParameters),
    /// Zoned flash.
    Zones(ZonesParameters),
}

impl Parameters {
    /// Whose rules are followed.
    pub fn arithmetic(&self) -> Arithmetic {
        match self {
            Parameters::Nvm(nvm) => nvm.arithmetic,
            Parameters::Kv(kv) => kv.arithmetic,
            Parameters::Flash(flash) => flash.arithmetic,
            Parameters::Zones(zones) => zones.flash.arithmetic,
        }
    }
}

/// Whose rules are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// The book's.
    #[default]
    Exact,
    /// Those of the published program (NVMeVirt), with what is known to be wrong in them.
    Code,
}

/// One direction of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Of one page of 4096 bytes alone.
    pub latency_ns: u64,
    /// 0: not limited.
    pub bandwidth_bytes_per_s: u64,
    /// 0: not limited.
    pub rate_per_s: u64,
}

/// Low-latency non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmParameters {
    /// Whose rules.
    pub arithmetic: Arithmetic,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
}

/// When the sub-commands of a compound command start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompoundRule {
    /// All at its arrival.
    #[default]
    Together,
    /// Each when the one before is done.
    InOrder,
}

/// Key-value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvParameters {
    /// Whose rules.
    pub arithmetic: Arithmetic,
    /// Units that work at the same time.
    pub units: u32,
    /// Of the whole drive: retrieve.
    pub read: Direction,
    /// Of the whole drive: store, append.
    pub write: Direction,
    /// Delete.
    pub delete_latency_ns: u64,
    /// Exist.
    pub exist_latency_ns: u64,
    /// List, iterators.
    pub list_latency_ns: u64,
    /// Compound commands.
    pub compound: CompoundRule,
}

macro_rules! declare {
    ($($(#[$doc:meta])+ $module:ident::$name:ident, $word:literal;)+) => {
        /// Which line is collected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CollectionPolicy {
            $($(#[$doc])+ $name),+
        }

        impl CollectionPolicy {
            /// Every policy.
            pub const ALL: &[Self] = &[$(Self::$name),+];
            /// Their words in a configuration, in the same order.
            pub const WORDS: &[&str] = &[$($word),+];
        }
    };
}

collection_policies!(declare);

impl Default for CollectionPolicy {
    fn default() -> Self {
        Self::ALL[0]
    }
}

/// Conventional flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashParameters {
    /// Whose rules.
    pub arithmetic: Arithmetic,
    /// Bytes that the host sees.
    pub size_bytes: u64,
    /// Independent FTLs.
    pub partitions: u32,
    /// Channels, a multiple of `partitions`.
    pub channels: u32,
    /// Dies on each.
    pub dies_per_channel: u32,
    /// Bytes that one sense reads.
    pub flash_page_bytes: u32,
    /// Bytes that one program writes.
    pub oneshot_bytes: u32,
    /// Of one block of one die.
    pub block_bytes: u64,
    /// Kinds of flash pages: 1 to 4.
    pub cell_bits: u8,
    /// Physical over logical space, in tenths of a percent.
    pub overprovisioning_permille: u32,
    /// Sense of one page of 4096 bytes, by cell.
    pub read_4k_ns: [u64; 4],
    /// Sense of more, by cell.
    pub read_ns: [u64; 4],
    /// Program of a wordline.
    pub program_ns: u64,
    /// Erase of a block.
    pub erase_ns: u64,
    /// Of each channel; 0: not limited.
    pub channel_bandwidth_bytes_per_s: u64,
    /// Most bytes of one transfer of a sense.
    pub max_channel_transfer_bytes: u32,
    /// For each 4096 bytes over a channel.
    pub firmware_channel_transfer_ns: u64,
    /// Of the link to the host, each way; 0: not limited.
    pub link_bandwidth_bytes_per_s: u64,
    /// Before the senses of a small read.
    pub firmware_read_4k_ns: u64,
    /// Before the senses of any other.
    pub firmware_read_ns: u64,
    /// Shared write buffer.
    pub buffer_bytes: u64,
    /// Before the data of a write is fetched.
    pub buffer_base_ns: u64,
    /// And for each 4096 bytes of it.
    pub buffer_per_page_ns: u64,
    /// A write is done when it is in the buffer.
    pub early_completion: bool,
    /// Of a Deallocate.
    pub deallocate_ns: u64,
    /// Free lines of a partition at which a line is collected.
    pub collect_below: u32,
    /// Which one.
    pub policy: CollectionPolicy,
    /// Parts that are off by default.
    pub extras: FlashExtras,
}

/// Mechanisms that are off by default: all zero, and one plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashExtras {
    /// An idle drive collects in each partition that has fewer free lines; 0: never.
    pub background_below: u32,
    /// It is idle when no command has arrived for so long.
    pub background_idle_ns: u64,
    /// Of all that is left to chance.
    pub seed: u64,
    /// Sigma of the lognormal spread of senses, in thousandths; 0: none.
    pub read_jitter_permille: u32,
    /// The same of programs.
    pub program_jitter_permille: u32,
    /// The same of erases.
    pub erase_jitter_permille: u32,
    /// Probability, in millionths, that a sense has to be repeated; 0: never.
    pub read_retry_ppm: u32,
    /// Parts of a die that sense apart from each other; 1: a die is one.
    pub planes: u32,
    /// How often one program or erase is suspended for reads; 0: never.
    pub suspend_limit: u32,
    /// From a read's sense being asked for to its beginning, where that suspends something.
    pub suspend_ns: u64,
    /// From the end of the senses to the going on of what was suspended.
    pub resume_ns: u64,
    /// Bytes of a cache of single-bit cells, all partitions together; 0: none.
    pub slc_cache_bytes: u64,
    /// Program of a wordline into it.
    pub slc_program_ns: u64,
    /// Sense of a wordline in it that is folded.
    pub slc_read_ns: u64,
    /// It is folded when no command has arrived for so long.
    pub slc_idle_ns: u64,
    /// Pages of its map that a partition keeps in memory; 0: all.
    pub map_cache_pages: u32,
}

impl Default for FlashExtras {
    fn default() -> Self {
        Self {
            background_below: 0,
            background_idle_ns: 0,
            seed: 0,
            read_jitter_permille: 0,
            program_jitter_permille: 0,
            erase_jitter_permille: 0,
            read_retry_ppm: 0,
            planes: 1,
            suspend_limit: 0,
            suspend_ns: 0,
            resume_ns: 0,
            slc_cache_bytes: 0,
            slc_program_ns: 0,
            slc_read_ns: 0,
            slc_idle_ns: 0,
            map_cache_pages: 0,
        }
    }
}

/// Zoned flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonesParameters {
    /// Dies, channels, link, buffer; `size_bytes` is that of all zones, with what lies beyond their
    /// capacities. Parameters of the FTL (`partitions`, over-provisioning, collection) are not
    /// looked at.
    pub flash: FlashParameters,
    /// ZSZE: from the start of one zone to that of the next.
    pub zone_size_bytes: u64,
    /// Bytes of a zone that can be written.
    pub zone_capacity_bytes: u64,
    /// Dies that a zone lies on.
    pub dies_per_zone: u32,
    /// A buffer of each zone's own; 0: all share `flash.buffer_bytes`.
    pub zone_buffer_bytes: u64,
    /// Of a reset, at least.
    pub reset_ns: u64,
    /// Of a finish, at least.
    pub finish_ns: u64,
    /// A finish programs what is not written.
    pub finish_writes: bool,
    /// Of an explicit open.
    pub open_ns: u64,
}
