//! Which namespace it is that a host was offered.

use nvme_spec::Status;
use port::ChannelId;
use port::namespace::{Namespace, NamespaceTable};

/// A namespace: where it lies, and its names. Another one may get its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    nsid: u32,
    lba_shift: u8,
    channel: ChannelId,
    start: u64,
    nguid: [u8; 16],
    eui64: [u8; 8],
    /// It has another command set than NVM.
    has_set: bool,
}

impl Identity {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        Self {
            nsid: namespace.nsid,
            lba_shift: namespace.lba_shift,
            channel: namespace.channel,
            start: namespace.start,
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            has_set: namespace.set.is_some(),
        }
    }

    /// The namespace, where commands may still go to it: it is there, with the blocks that it had,
    /// and is not about to get others. It may have grown or shrunk.
    pub(crate) fn find<'t>(&self, namespaces: &'t NamespaceTable) -> Option<&'t Namespace> {
        let is_same = |it: &&Namespace| {
            let all = it.restrictions.as_ref().and_then(|it| it.all);
            Self::of(it) == *self && all != Some(Status::FORMAT_IN_PROGRESS)
        };
        namespaces.get(self.nsid).filter(is_same)
    }
}
