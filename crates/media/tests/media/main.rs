//! The media as a reactor uses them: a host's memory that is mapped as a client's is, real files
//! and devices.

mod allocation;
mod atomic;
mod beside;
mod block_device;
mod commands;
mod common;
mod early;
mod handed;
mod kept;
mod lane;
mod model;
mod modes;
mod no_allocation;
mod open;
mod outlived;
mod outlived_keys;
mod outlived_pairs;
mod outlived_records;
mod outlived_zones;
mod registered;
mod scattered;
mod timed;
mod zoned;
