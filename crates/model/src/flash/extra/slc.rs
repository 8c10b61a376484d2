//! A cache of single-bit cells: host writes are programmed faster while there is room in it, and
//! folded into multi-bit cells while the drive is idle.

use std::collections::VecDeque;

use crate::parameters::FlashParameters;

/// Conditions of caching and folding.
#[derive(Clone, Copy, Debug)]
pub(in crate::flash) struct SlcCache {
    /// Wordlines of the cache in one partition.
    pub(in crate::flash) wordlines: usize,
    /// Idle time before folding starts.
    pub(in crate::flash) idle: u64,
}

impl SlcCache {
    /// From the parameters, which were checked; `None` if it is off.
    pub(in crate::flash) fn new(parameters: &FlashParameters) -> Option<Self> {
        let of_all = u64::from(parameters.partitions) * u64::from(parameters.oneshot_bytes);
        let wordlines = parameters.extras.slc_cache_bytes / of_all;
        (wordlines > 0).then(|| Self {
            wordlines: usize::try_from(wordlines).unwrap_or(usize::MAX),
            idle: parameters.extras.slc_idle_ns,
        })
    }
}

/// Contents of one partition's cache.
#[derive(Debug, Default)]
pub(in crate::flash) struct Cached {
    /// The die of each wordline, the oldest first.
    pub(in crate::flash) dies: VecDeque<usize>,
    /// End of the last fold.
    pub(in crate::flash) folded: u64,
    /// Pages of all folded wordlines.
    pub(in crate::flash) folded_pages: u64,
}

impl Cached {
    /// Empties the cache.
    pub(in crate::flash) fn clear(&mut self) {
        self.dies.clear();
        self.folded = 0;
    }
}
