//! Traces in the formats of other programs. All of them require records in order of time
//! ([`crate::by_time`]).

mod blktrace;
mod chrome;
mod csv;
mod fio;

use std::collections::BTreeMap;

pub use blktrace::blktrace;
pub use chrome::chrome;
pub use csv::csv;
pub use fio::fio;

use crate::Asked;

/// Commands that a format cannot represent: reasons and numbers.
pub type LeftOut = BTreeMap<&'static str, u64>;

/// Counts the further ranges of a command, which a trace does not contain.
pub fn leave_out_further_ranges(left_out: &mut LeftOut, asked: &Asked) {
    if let Asked::Deallocate { more, .. } = *asked
        && more > 0
    {
        *left_out.entry("are further ranges of one").or_default() += u64::from(more);
    }
}

/// Counts one command.
fn leave_out(left_out: &mut LeftOut, why: &'static str) {
    *left_out.entry(why).or_default() += 1;
}

#[cfg(test)]
mod tests;
