//! The doorbells of a lane's queues: the pages of its controller, and the host's doorbell buffers.
//!
//! It does NOT know which doorbell belongs to which queue, or what a value means: `crate::queue`
//! does.

use std::sync::Arc;

use memory::{DmaView, DoorbellPages, ShadowDoorbells};

use crate::queue::Bells;

#[derive(Debug)]
pub(super) struct Doorbells {
    pages: Arc<DoorbellPages>,
    /// The host's doorbell buffers, where it registered some.
    shadow: Option<ShadowDoorbells>,
}

impl Doorbells {
    pub(super) fn new(pages: Arc<DoorbellPages>, shadow: Option<ShadowDoorbells>) -> Self {
        Doorbells { pages, shadow }
    }

    /// The location of the doorbells.
    #[inline]
    pub(super) fn bells(&self) -> Bells<'_> {
        Bells {
            pages: &self.pages,
            shadow: self.shadow.as_ref(),
        }
    }

    /// Stores the tail of a submission queue and the head of a completion queue, as the host does
    /// in mapped pages.
    pub(super) fn store(&self, (sqid, tail): (u16, u32), (cqid, head): (u16, u32)) {
        self.pages.store(2 * usize::from(sqid), tail);
        self.pages.store(2 * usize::from(cqid) + 1, head);
    }

    /// Whether the host has registered doorbell buffers.
    pub(super) fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The host has registered doorbell buffers, or their registration has ended.
    pub(super) fn set_shadow(&mut self, shadow: Option<ShadowDoorbells>) {
        self.shadow = shadow;
    }

    /// The host's memory map changed.
    pub(super) fn resolve(&mut self, view: &Arc<DmaView>) {
        if let Some(shadow) = &mut self.shadow {
            shadow.resolve(view);
        }
    }
}
