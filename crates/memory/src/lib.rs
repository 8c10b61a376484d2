//! The only crate that maps memory and shares it.
//!
//! - [`guest`]: memory that a host shares with us. It is mapped once per file
//!   ([`mapping`](guest::mapping)), found by the host's addresses through an immutable snapshot
//!   ([`dma`](guest::dma)), and accessed in four ways only: data is copied ([`Segment`]), queue
//!   entries are loaded and stored with their ordering ([`ring`](guest::ring),
//!   [`virtqueue`](guest::virtqueue)), doorbells are single words ([`doorbell`](guest::doorbell)),
//!   and the kernel gets an address for its own I/O ([`Segment::as_raw`],
//!   [`socket`](guest::socket)) or for a device's ([`vfio`]).
//!   [`written`](guest::written) logs the pages that are written.
//! - [`own`]: memory of this process: anonymous or of a memfd, huge pages, and state that outlives
//!   the process.
//! - [`store`]: the bytes of the RAM medium.
//! - [`sync`]: what threads of this process share without locks.
//! - [`numa`]: the node of memory. [`vfio`]: functions of physical devices. [`signals`]: what the
//!   process survives.
//!
//! A host may change its memory at any moment, also while we read it: no code here creates a
//! reference to it, or reads a host's byte twice to decide about it.
//!
//! All memory orderings against the other side live in the named helpers of the private module
//! `sync::order`.
//!
//! Not included: this crate knows no NVMe command and no vfio-user message, checks no guest value
//! beyond addresses and lengths, and does not decide when work is done.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

pub mod guest;
pub mod numa;
pub mod own;
pub mod signals;
pub mod store;
pub mod sync;
pub mod vfio;

pub use guest::address::Iova;
pub use guest::dma::{
    Access, DmaError, DmaMap, DmaView, Hint, Lent, MAX_DMA_REGIONS, Near, Need, PinId, Reach,
    Region, Scratch, Segment, TranslateError, ViewPins,
};
pub use guest::doorbell::{DoorbellPages, ShadowDoorbells, full_fence, loads_done};
pub use guest::host::{Buffer, HostCq, HostMemory, HostSq};
pub use guest::lost::{LostFlag, install_sigbus_handler};
pub use guest::mapping::{ClientMappings, MapError, Mapping};
pub use guest::ring::{CqRing, MAX_RING_ENTRIES, RingError, SqRing};
pub use guest::virtqueue::{
    AreaError, EventSuppression, PackedDescriptor, PackedRing, SharedArea, SplitDescriptor,
    SplitRing,
};
pub use guest::written::{LogError, WrittenLog};
pub use own::PAGE;
pub use own::huge::{HUGE_PAGE_LEN, HugePages};
pub use own::state::{Area, OpenError, StateError, StateFile, ordered};
pub use signals::survive_file_size_limit;
pub use store::allocated::Run;
pub use store::pieces::Pieces;
pub use store::{Store, StorePages};
pub use sync::claims::{Claim, Claimant, Claims, MAX_CLAIMANTS};
pub use sync::counters::{Counter, Histogram, LogHistogram};
pub use sync::mail_count::MailCount;
pub use sync::pool::Pool;
pub use sync::records::{RECORD_WORDS, Records};
pub use sync::sleep::Bell;
pub use sync::wake::EventFd;
