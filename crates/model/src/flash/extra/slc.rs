//! A cache of single-bit cells: what hosts write is programmed faster while there is room, and
//! folded into the cells proper while nobody asks for anything.

use std::collections::VecDeque;

use crate::parameters::FlashParameters;

/// When wordlines are cached and folded.
#[derive(Clone, Copy, Debug)]
pub(in crate::flash) struct SlcCache {
    /// Wordlines of one partition.
    pub(in crate::flash) wordlines: usize,
    /// They are folded after so long without a command.
    pub(in crate::flash) idle: u64,
}

impl SlcCache {
    /// As the parameters, which were checked, say: none if it is off.
    pub(in crate::flash) fn new(parameters: &FlashParameters) -> Option<Self> {
        let of_all = u64::from(parameters.partitions) * u64::from(parameters.oneshot_bytes);
        let wordlines = parameters.extras.slc_cache_bytes / of_all;
        (wordlines > 0).then(|| Self {
            wordlines: usize::try_from(wordlines).unwrap_or(usize::MAX),
            idle: parameters.extras.slc_idle_ns,
        })
    }
}

/// What is in the cache of one partition.
#[derive(Debug, Default)]
pub(in crate::flash) struct Cached {
    /// The die of each wordline, from the one that was programmed first.
    pub(in crate::flash) dies: VecDeque<usize>,
    /// When the last fold has ended.
    pub(in crate::flash) folded: u64,
    /// Pages of all wordlines that were folded.
    pub(in crate::flash) folded_pages: u64,
}

impl Cached {
    /// Nothing is cached.
    pub(in crate::flash) fn clear(&mut self) {
        self.dies.clear();
        self.folded = 0;
    }
}
