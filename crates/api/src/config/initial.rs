//! `initial` of `[media.timing]`: the state of a new drive.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a new drive of conventional flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// Nothing is written.
    Fresh,
    /// Every block was written once, in order.
    #[default]
    Filled,
    /// The steady state of random overwrites.
    Steady,
}

impl Initial {
    /// All of them.
    pub const ALL: [Initial; 3] = [Initial::Fresh, Initial::Filled, Initial::Steady];

    /// The word of a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Initial::Fresh => "fresh",
            Initial::Filled => "filled",
            Initial::Steady => "steady",
        }
    }
}

impl From<Initial> for model::Initial {
    fn from(initial: Initial) -> Self {
        match initial {
            Initial::Fresh => model::Initial::Fresh,
            Initial::Filled => model::Initial::Filled,
            Initial::Steady => model::Initial::Steady,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Config, Text, Timing, from_toml};

    fn parse(text: &str) -> Result<Timing, String> {
        Timing::parse(text, |_, _| Err(std::io::ErrorKind::NotFound.into()))
    }

    fn media(timing: &str) -> Result<Config, String> {
        let head = "[[media]]\nname = \"d\"\nkind = \"ram\"\nsize = \"8GiB\"\n[media.timing]";
        from_toml(&format!("{head}\n{timing}\n")).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_new_drive_of_flash_is_filled_unless_told_otherwise() {
        let initial = |text: &str| parse(text).unwrap().initial();
        assert_eq!(initial("samsung-970-pro"), Some(Initial::Filled));
        assert_eq!(
            initial("samsung-970-pro,initial=steady"),
            Some(Initial::Steady)
        );
        for of_another_kind in ["optane-p4800x", "samsung-kvssd", "wd-zn540"] {
            assert_eq!(initial(of_another_kind), None);
        }
        let error = parse("samsung-970-pro,initial=empty").unwrap_err();
        assert!(error.contains("write fresh, filled or steady"), "{error}");
        // A recording states it, so that its replay begins with the same drive.
        let word = parse("samsung-970-pro,block=64KiB").unwrap().in_one_word();
        assert_eq!(word, "samsung-970-pro,block=64KiB,initial=filled");
        let word = parse("optane-p4800x,read_latency=10us")
            .unwrap()
            .in_one_word();
        assert_eq!(word, "optane-p4800x,read_latency=10us");

        let fresh = "preset = \"samsung-970-pro\"\ninitial = \"fresh\"";
        let config = media(fresh).unwrap();
        let timing = config.media[0].timing.as_ref().unwrap();
        assert_eq!(timing.initial(), Some(Initial::Fresh));
        let live = BTreeMap::from([("initial".to_owned(), Text("filled".to_owned()))]);
        let error = timing.changed(&live, 8 << 30).unwrap_err().join("; ");
        assert!(error.contains("fixed at creation"), "{error}");
        for (timing, says) in [
            (
                "preset = \"samsung-970-pro\"\ninitial = \"full\"",
                "unknown value `full`",
            ),
            (
                "preset = \"optane-p4800x\"\ninitial = \"filled\"",
                "initial: only for presets of kind flash, and optane-p4800x is of kind nvm",
            ),
        ] {
            let error = media(timing).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
