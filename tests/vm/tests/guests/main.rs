//! Real guests on drives that `nvmirage serve` makes: a stock Debian kernel with its own NVMe
//! driver, under QEMU.
//!
//! One file for each thing that happens to a guest; the shell scripts that guests run are in
//! `jobs/`.

mod discovery;
mod doorbells;
mod drive;
mod ending;
mod events;
mod every_kind;
mod firmware;
mod identity;
mod images;
mod interrupts;
mod key_value;
mod manage;
mod mediated;
mod memory;
mod moves;
mod nbd;
mod over_tcp;
mod polled;
mod resets;
mod rings;
mod served;
mod service;
mod shared;
mod spread;
mod stops;
mod survive;
mod tcp;
mod two;
mod ublk;
mod unplug;
mod vfio;
mod vhost;
mod vhost_zones;
mod zoned;

/// What `seq 1 LAST` prints: text that guest and host can both make.
fn numbers(last: u32) -> Vec<u8> {
    let lines = (1..=last).map(|number| format!("{number}\n"));
    lines.flat_map(String::into_bytes).collect()
}
