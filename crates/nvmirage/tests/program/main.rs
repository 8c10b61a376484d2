//! The program as its users meet it: its binary, its files, its words.
//!
//! Every test has a folder of its own for sockets, media and state; servers do not outlive their tests.

#![expect(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod address;
mod api;
mod api_abuse;
mod bench;
mod calibrate;
mod check;
mod clone;
mod completions;
mod conformance;
mod consent;
mod control;
mod dashboard;
mod demo;
mod drives;
mod events;
mod every_kind;
mod explain;
mod fidelity;
mod full_disk;
mod fuse;
mod fuse_bytes;
mod fuse_user;
mod hangups;
mod host;
mod hosts;
mod http;
mod journey;
mod kept;
mod keys_kept;
mod kv;
mod map;
mod metrics;
mod moves;
mod native;
mod partitions;
mod pool;
mod qemu;
mod queues;
mod read_only;
mod recorded;
mod refused_memory;
mod reload;
mod sample;
mod saved;
mod serve;
mod service;
mod sgl;
mod shared_drives;
mod simulate;
mod subsystems;
mod tenants;
mod timed;
mod timing_state;
mod top;
mod traces;
mod traces_keys;
mod traces_zoned;
mod up;
mod words;
mod world;
mod zones_kept;
mod zones_lost;
