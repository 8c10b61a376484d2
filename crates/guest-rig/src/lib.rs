//! Real guests, for tests and for `nvmirage demo --vm`: a stock Debian kernel under QEMU, with
//! drives that are under test.
//!
//! A [`Rig`] has what guests are made of; [`Guest::boot`] starts one, which runs a job (a shell
//! script with the functions of `guest/steps.sh`) and turns itself off; [`Guest::finish`] gives
//! back its [`Report`]. Nothing needs root, /dev/kvm or a network once `cargo xtask setup` has
//! fetched the parts: QEMU emulates the processor, so guests show function, never speed. Every wait
//! is bounded, and a guest that overruns its bound is ended.
#![forbid(unsafe_code)]

mod apt;
pub mod cache;
pub mod certificates;
pub mod cpio;
pub mod debian;
mod files;
pub mod firmware;
pub mod guest;
pub mod initramfs;
pub mod kernel;
pub mod libnbd;
pub mod libvirt;
pub mod lines;
mod monitor;
mod program;
pub mod prometheus;
pub mod qemu;
pub mod report;
pub mod rig;
pub mod server;
pub mod sources;
mod systemd;

pub use guest::{Boot, Guest, Options};
pub use kernel::Kernel;
pub use qemu::{Disk, Qemu};
pub use report::{Report, Step};
pub use rig::Rig;
pub use server::Server;
