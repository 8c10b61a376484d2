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
