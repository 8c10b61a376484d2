//! Data of options.

use crate::Export;
use crate::bytes::Bytes;
use crate::constants::{BASE, BASE_ALLOCATION, InfoType};

/// The export of a name that a client sends. The empty name is the default export: the one without
/// a name, or the only one.
pub(super) fn find(exports: &[Export], name: &[u8]) -> Option<usize> {
    let named = exports
        .iter()
        .position(|export| export.name.as_bytes() == name);
    match named {
        None if name.is_empty() && exports.len() == 1 => Some(0),
        named => named,
    }
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(super) struct Info<'a> {
    pub(super) name: &'a [u8],
    requests: Bytes<'a>,
}

impl<'a> Info<'a> {
    /// `None`: the lengths do not add up.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut data = Bytes(data);
        let name = data.string()?;
        let count = usize::from(data.u16()?);
        (data.0.len() == 2 * count).then_some(Self {
            name,
            requests: data,
        })
    }

    /// Whether it asks for this.
    pub(super) fn requests(&self, info: InfoType) -> bool {
        let mut requests = self.requests;
        std::iter::from_fn(|| requests.u16()).any(|request| request == info.0)
    }
}

/// Data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
pub(super) struct Contexts<'a> {
    pub(super) name: &'a [u8],
    /// There are no queries.
    pub(super) none: bool,
    /// A query is the wildcard of `base`.
    pub(super) wildcard: bool,
    /// A query is `base:allocation`.
    pub(super) allocation: bool,
}

impl<'a> Contexts<'a> {
    /// `None`: the lengths do not add up. Queries for other contexts are ignored.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut data = Bytes(data);
        let name = data.string()?;
        let count = data.u32()?;
        let mut contexts = Self {
            name,
            none: count == 0,
            wildcard: false,
            allocation: false,
        };
        for _ in 0..count {
            let query = data.string()?;
            contexts.wildcard |= query == BASE.as_bytes();
            contexts.allocation |= query == BASE_ALLOCATION.as_bytes();
        }
        data.is_empty().then_some(contexts)
    }
}
