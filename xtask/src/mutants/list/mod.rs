//! The mutations, by where they are in the life of a command.

mod access;
mod api;
mod authentication;
mod block_status;
mod book;
mod commands;
mod consent;
mod discovery;
mod drives;
mod exports;
mod fabrics;
mod files;
mod front_end;
mod front_ends;
mod fuse;
mod hosts;
mod initiator;
mod interrupts;
mod isolation;
mod key_value;
mod keys;
mod load;
mod memory_map;
mod migrate;
mod models;
mod nbd;
mod network;
mod observe;
mod operators;
mod over_nbd;
mod over_ublk;
mod over_vhost;
mod partitions;
mod physical;
mod queues;
mod read_only;
mod reload;
mod resets;
mod restart;
mod saved;
mod service;
mod simulate;
mod splits;
mod stages;
mod subsystem;
mod survive;
mod tcp;
mod tcp_target;
mod tenants;
mod tls;
mod traces;
mod travel;
mod ublk_abi;
mod ublk_session;
mod vhost_codec;
mod vhost_rings;
mod vhost_session;
mod vhost_zones;
mod wear;
mod written;
mod zones;

use super::Mutation;

const ALL: &[&[Mutation]] = &[
    access::MUTATIONS,
    api::MUTATIONS,
    authentication::MUTATIONS,
    block_status::MUTATIONS,
    book::MUTATIONS,
    queues::MUTATIONS,
    memory_map::MUTATIONS,
    migrate::MUTATIONS,
    commands::MUTATIONS,
    consent::MUTATIONS,
    discovery::MUTATIONS,
    drives::MUTATIONS,
    exports::MUTATIONS,
    fabrics::MUTATIONS,
    files::MUTATIONS,
    front_end::MUTATIONS,
    front_ends::MUTATIONS,
    fuse::MUTATIONS,
    hosts::MUTATIONS,
    initiator::MUTATIONS,
    interrupts::MUTATIONS,
    isolation::MUTATIONS,
    key_value::MUTATIONS,
    keys::MUTATIONS,
    load::MUTATIONS,
    models::MUTATIONS,
    observe::MUTATIONS,
    nbd::MUTATIONS,
    network::MUTATIONS,
    operators::MUTATIONS,
    over_nbd::MUTATIONS,
    over_ublk::MUTATIONS,
    over_vhost::MUTATIONS,
    partitions::MUTATIONS,
    physical::MUTATIONS,
    read_only::MUTATIONS,
    reload::MUTATIONS,
    restart::MUTATIONS,
    survive::MUTATIONS,
    resets::MUTATIONS,
    saved::MUTATIONS,
    service::MUTATIONS,
    simulate::MUTATIONS,
    splits::MUTATIONS,
    stages::MUTATIONS,
    subsystem::MUTATIONS,
    tcp::MUTATIONS,
    tcp_target::MUTATIONS,
    tenants::MUTATIONS,
    tls::MUTATIONS,
    traces::MUTATIONS,
    travel::MUTATIONS,
    ublk_abi::MUTATIONS,
    ublk_session::MUTATIONS,
    vhost_codec::MUTATIONS,
    vhost_rings::MUTATIONS,
    vhost_session::MUTATIONS,
    vhost_zones::MUTATIONS,
    wear::MUTATIONS,
    written::MUTATIONS,
    zones::MUTATIONS,
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Mutation> {
    ALL.iter().copied().flatten()
}
