//! Shell completion of names that the program knows without a server.

use std::ffi::OsStr;

use clap_complete::ArgValueCompleter;
use model::preset;
use terminal::complete::offer;

/// Names of presets.
#[must_use]
pub fn presets() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let default = preset::presets().filter(|p| p.is_default && p.full_name() != p.name);
        let names = default.map(|p| (p.name.to_owned(), p.about.to_owned()));
        let variants = preset::presets().map(|p| (p.full_name(), p.about.to_owned()));
        offer(current, names.chain(variants))
    })
}

/// Names of presets, and kinds of media.
#[must_use]
pub fn presets_and_kinds() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let kinds = [
            ("ram", "memory"),
            ("file", "file or block device"),
            ("null", "no data: discards writes"),
            ("keyvalue", "keys and values in memory, or in a file"),
        ];
        let kinds = kinds.map(|(name, about)| (name.to_owned(), about.to_owned()));
        let names = preset::presets().filter(|p| p.is_default);
        let names = names.map(|p| (p.name.to_owned(), p.about.to_owned()));
        offer(current, kinds.into_iter().chain(names))
    })
}
