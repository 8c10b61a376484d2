//! Choice of the line to collect. A policy is one file here and one line in `policies.rs`; the
//! configuration, `explain`, `simulate`, the API and completion then know it.

use super::lines::Lines;
use crate::parameters::CollectionPolicy;

/// Chooses the line to collect.
pub trait Policy: std::fmt::Debug + Send {
    /// A full line with an invalid page; `None` if there is none.
    fn victim(&mut self, lines: &Lines) -> Option<u32>;
}

macro_rules! modules {
    ($($(#[$doc:meta])+ $module:ident::$name:ident, $word:literal;)+) => {
        $(mod $module;)+

        /// The policy of that name.
        pub(super) fn policy(named: CollectionPolicy) -> Box<dyn Policy> {
            match named {
                $(CollectionPolicy::$name => Box::new($module::$name)),+
            }
        }
    };
}

collection_policies!(modules);
