//! Namespaces as exports.

use nbd::{BlockSizes, Export, TransmissionFlags};
use port::namespace::{Namespace, NamespaceTable};

use crate::host::Identity;

/// Longest data of one request, in bytes: what clients take for it that do not ask.
pub(super) const MAX_DATA: u32 = 32 << 20;

/// A namespace that clients can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its identifier.
    pub nsid: u32,
    /// Size of its logical block as a power of two.
    pub lba_shift: u8,
    /// Which one it is: another one may get its identifier.
    is: Identity,
    /// How it is described to clients.
    pub export: Export,
}

impl Offer {
    /// Whether requests may still go to its namespace: it is there, with the blocks that it had,
    /// and is not about to get others.
    pub(super) fn is_valid(&self, namespaces: &NamespaceTable) -> bool {
        self.is.find(namespaces).is_some()
    }
}

/// A namespace by a name. `None` where NBD cannot express it: it has zones, keys, or another
/// command set.
#[must_use]
pub fn offer(namespace: &Namespace, name: &str) -> Option<Offer> {
    if namespace.set.is_some() {
        return None;
    }
    let restrictions = namespace.restrictions.as_ref();
    let read_only = restrictions.is_some_and(|it| it.read_only);
    let traits = &namespace.traits;
    let flags = TransmissionFlags::new()
        .with_has_flags(true)
        .with_read_only(read_only)
        .with_send_flush(true)
        .with_send_fua(true)
        .with_send_trim(true)
        .with_send_write_zeroes(true)
        .with_can_multi_conn(true)
        .with_send_fast_zero(traits.deallocate && traits.deallocated_reads_zero)
        .with_send_cache(true);
    let block = BlockSizes {
        minimum: 1,
        preferred: 4096,
        maximum: MAX_DATA,
    };
    Some(Offer {
        nsid: namespace.nsid,
        lba_shift: namespace.lba_shift,
        is: Identity::of(namespace),
        export: Export {
            name: name.to_owned(),
            description: String::new(),
            size: namespace.extent().len,
            flags,
            block,
            allocation: traits.allocation,
        },
    })
}

/// The namespaces that clients of one entrance can choose, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    places: Vec<(u32, u8, Identity)>,
    exports: Vec<Export>,
}

impl Offers {
    /// How they are described to clients.
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// The one with this index, which is there.
    pub(super) fn get(&self, index: usize) -> Offer {
        let (nsid, lba_shift, is) = self.places[index];
        Offer {
            nsid,
            lba_shift,
            is,
            export: self.exports[index].clone(),
        }
    }
}

impl FromIterator<Offer> for Offers {
    fn from_iter<T: IntoIterator<Item = Offer>>(all: T) -> Self {
        let mut offers = Self::default();
        for offer in all {
            let place = (offer.nsid, offer.lba_shift, offer.is);
            offers.places.push(place);
            offers.exports.push(offer.export);
        }
        offers
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nvme_spec::Status;
    use port::namespace::Restrictions;
    use port::{ChannelId, MediumTraits};

    use super::*;

    fn namespace() -> Namespace {
        Namespace {
            nsid: 3,
            channel: ChannelId(1),
            start: 4096,
            blocks: 8,
            lba_shift: 9,
            nguid: [7; 16],
            eui64: [8; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set: None,
        }
    }

    /// A client takes what is no hole for allocated: a write to it does not fail for lack of space.
    #[test]
    fn only_a_medium_that_knows_its_holes_has_the_context() {
        let mut namespace = namespace();
        assert!(!offer(&namespace, "data").expect("bytes").export.allocation);
        namespace.traits.allocation = true;
        assert!(offer(&namespace, "data").expect("bytes").export.allocation);
    }

    #[test]
    fn another_namespace_with_the_same_identifier_is_none_of_it() {
        let offer = offer(&namespace(), "data").expect("it has bytes");
        let is_valid = |change: fn(&mut Namespace)| {
            let mut namespace = namespace();
            change(&mut namespace);
            offer.is_valid(&NamespaceTable::from(vec![namespace]))
        };
        assert!(is_valid(|_| {}));
        // It may grow, and be read only for a while.
        assert!(is_valid(|it| it.blocks = 9));
        let restricted = |all| {
            Some(Arc::new(Restrictions {
                all,
                read_only: true,
                ..Restrictions::default()
            }))
        };
        let [format, sanitize] = [Status::FORMAT_IN_PROGRESS, Status::SANITIZE_IN_PROGRESS];
        let table = |all| {
            let restrictions = restricted(Some(all));
            NamespaceTable::from(vec![Namespace {
                restrictions,
                ..namespace()
            }])
        };
        assert!(!offer.is_valid(&table(format)), "it may get other blocks");
        assert!(offer.is_valid(&table(sanitize)));
        let others: [fn(&mut Namespace); 6] = [
            |it| it.nsid = 4,
            |it| it.lba_shift = 12,
            |it| it.channel = ChannelId(2),
            |it| it.start = 0,
            |it| it.nguid[0] = 1,
            |it| it.eui64[0] = 1,
        ];
        for (at, change) in others.into_iter().enumerate() {
            assert!(!is_valid(change), "{at}");
        }
    }
}
