//! Memory that hosts share with us, and our side as a host of a drive.

pub mod address;
pub mod dma;
pub mod doorbell;
pub mod host;
pub mod kernel;
pub mod lost;
pub mod mapping;
pub mod ring;
pub mod socket;
pub mod virtqueue;
pub mod written;
