//! Errors about parameters of timing models, with the parameter that was probably meant.

use model::{InvalidParameter, Kind};

use super::read::nearest_word;

/// An error, with the parameter that was probably meant, or else where all are listed.
pub fn parameter_error(error: &InvalidParameter) -> String {
    let InvalidParameter::Unknown { name, kind } = error else {
        return error.to_string();
    };
    let meant = match part_of(name, *kind) {
        Some(parts) => Some(parts.to_owned()),
        None => nearest_word(name, kind.parameters().map(|p| p.name))
            .map(|word| format!("did you mean `{word}`?")),
    };
    let meant = meant.unwrap_or_else(|| "`nvmirage explain PRESET` lists them".to_owned());
    format!("{error}; {meant}")
}

/// The parameters that replace a single latency in a flash model.
fn part_of(name: &str, kind: Kind) -> Option<&'static str> {
    match (kind, name) {
        (Kind::Flash | Kind::Zns, "read_latency") => Some(
            "the read latency of flash is the sum of its parts: set read_4k_cell0 to read_4k_cell3 (up to 4 KiB) and read_cell0 to read_cell3 (more)",
        ),
        (Kind::Flash | Kind::Zns, "write_latency") => Some(
            "the write latency of flash is the sum of its parts: set buffer_base and buffer_per_page, and program for the time that the buffer waits for",
        ),
        _ => None,
    }
}
