//! The only crate that maps memory and shares it.
//!
//! Memory that a host shares with us is mapped once per file ([`mapping`]), found by the host's
//! addresses through an immutable snapshot ([`dma`]), and accessed in four ways only: data is
//! copied ([`Segment`]), queue entries are loaded and stored with their ordering ([`ring`]),
//! doorbells are single words ([`doorbell`]), and the kernel gets an address for its own I/O
//! ([`Segment::as_raw`]) or for a device's ([`vfio`]). A host may change its memory at any moment,
//! also while we read it: no code here creates a reference to it, or reads a host's byte twice to
//! decide about it.
//!
//! All memory orderings against the other side live in the named helpers of the private module
//! `order`.
//!
//! What this crate does NOT do: it knows no NVMe command and no vfio-user message, checks no guest
//! value beyond addresses and lengths, and does not decide when work is done.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

pub mod address;
pub mod claims;
pub mod counters;
pub mod dma;
pub mod doorbell;
pub mod file_size;
pub mod host;
pub mod huge;
pub mod lost;
pub mod mailbox;
mod map;
pub mod mapping;
pub mod numa;
mod order;
mod pieces;
pub mod records;
pub mod ring;
pub mod sleep;
pub mod state;
pub mod store;
mod sync;
pub mod told;
pub mod vfio;
pub mod wake;

pub use address::{Iova, PAGE};
pub use claims::{Claim, Claimant, Claims, MAX_CLAIMANTS};
pub use counters::{Counter, Histogram, LogHistogram};
pub use dma::{
    Access, DmaError, DmaMap, DmaView, Hint, Lent, MAX_DMA_REGIONS, Near, Need, PinId, Reach,
    Region, Scratch, Segment, TranslateError, ViewPins,
};
pub use doorbell::{DoorbellPages, ShadowDoorbells, full_fence, loads_done};
pub use file_size::survive_file_size_limit;
pub use host::{Buffer, HostCq, HostMemory, HostSq};
pub use huge::{HUGE_PAGE_LEN, HugePages};
pub use lost::{LostFlag, install_sigbus_handler};
pub use mapping::{ClientMappings, MapError, Mapping};
pub use pieces::Pieces;
pub use records::{RECORD_WORDS, Records};
pub use ring::{CqRing, MAX_RING_ENTRIES, RingError, SqRing};
pub use sleep::Bell;
pub use state::{Area, StateError, StateFile};
pub use store::{Store, StorePages};
pub use told::Told;
pub use wake::EventFd;
