//! `ana` of a controller with `listen = "nvme-tcp:ADDRESS:PORT"`: the state of each ANA group for
//! its hosts, as a table or as a text, `2=inaccessible,3=non-optimized`.

use std::collections::BTreeMap;
use std::fmt;

use nvme_spec::ana::AnaState as State;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subsystem::{AnaStates, MAX_ANA_GROUP};
use utoipa::ToSchema;

/// State of an ANA group, in the words of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnaState {
    /// The best way to the namespaces.
    Optimized,
    /// A way for when there is no better one.
    NonOptimized,
    /// No way now.
    Inaccessible,
    /// No way any more.
    PersistentLoss,
    /// No way in a short transition.
    Change,
}

impl AnaState {
    /// All of them, with the words for them.
    pub const ALL: [(&str, Self); 5] = [
        ("optimized", AnaState::Optimized),
        ("non-optimized", AnaState::NonOptimized),
        ("inaccessible", AnaState::Inaccessible),
        ("persistent-loss", AnaState::PersistentLoss),
        ("change", AnaState::Change),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(_, state)| *state == self).map_or("", |it| it.0)
    }

    /// As it is written, with the error of serde.
    fn of(word: &str) -> Result<Self, String> {
        let word = StrDeserializer::<ValueError>::new(word);
        Self::deserialize(word).map_err(|error| error.to_string())
    }
}

impl From<AnaState> for State {
    fn from(state: AnaState) -> State {
        match state {
            AnaState::Optimized => State::OPTIMIZED,
            AnaState::NonOptimized => State::NON_OPTIMIZED,
            AnaState::Inaccessible => State::INACCESSIBLE,
            AnaState::PersistentLoss => State::PERSISTENT_LOSS,
            AnaState::Change => State::CHANGE,
        }
    }
}

/// States by group. A group that is missing is optimized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ana(pub BTreeMap<u32, AnaState>);

impl Ana {
    /// The state of a group.
    pub fn state(&self, group: u32) -> AnaState {
        let state = self.0.get(&group);
        state.copied().unwrap_or(AnaState::Optimized)
    }

    /// The states, as the subsystem takes them.
    pub fn states(&self) -> AnaStates {
        let states = self.0.iter();
        states
            .map(|(group, state)| (*group, (*state).into()))
            .collect()
    }

    fn add(&mut self, group: &str, state: AnaState) -> Result<(), String> {
        let number = group.parse().ok();
        let number = number.filter(|number| (1..=MAX_ANA_GROUP).contains(number));
        let number =
            number.ok_or_else(|| format!("ANA group `{group}`: write 1 to {MAX_ANA_GROUP}"))?;
        match self.0.insert(number, state) {
            Some(_) => Err(format!("ANA group {number} has two states: remove one")),
            None => Ok(()),
        }
    }

    fn of_text(text: &str) -> Result<Self, String> {
        let mut all = Ana::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let both = part.split_once('=');
            let (group, word) =
                both.ok_or_else(|| format!("`{part}`: write GROUP=STATE, as in 2=inaccessible"))?;
            all.add(group.trim(), AnaState::of(word.trim())?)?;
        }
        Ok(all)
    }
}

impl fmt::Display for Ana {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (group, state)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{group}={}", state.word())?;
        }
        Ok(())
    }
}

impl Serialize for Ana {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Keys of a table are texts in TOML.
        to.collect_map(
            self.0
                .iter()
                .map(|(group, state)| (group.to_string(), state)),
        )
    }
}

impl<'de> Deserialize<'de> for Ana {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Ana;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("states by ANA group, as in { 2 = \"inaccessible\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ana, E> {
                Ana::of_text(text).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ana, A::Error> {
                let mut all = Ana::default();
                while let Some((group, state)) = map.next_entry::<String, AnaState>()? {
                    all.add(&group, state).map_err(A::Error::custom)?;
                }
                Ok(all)
            }
        }

        from.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_have_the_same_states() {
        let states = |value| serde_json::from_value::<Ana>(value).unwrap();
        let table = states(json!({"2": "inaccessible", "128": "non-optimized"}));
        assert_eq!(states(json!("2=inaccessible, 128=non-optimized")), table);
        assert_eq!(table.to_string(), "2=inaccessible,128=non-optimized");
        let written = serde_json::to_value(&table).unwrap();
        assert_eq!(
            written,
            json!({"2": "inaccessible", "128": "non-optimized"})
        );
        assert_eq!(states(written), table);
        assert_eq!(table.state(2), AnaState::Inaccessible);
        assert_eq!(table.state(3), AnaState::Optimized);
        assert_eq!(states(json!("")), Ana::default());
        // Numbers of the states (Base 2.1, 5.1.12.1.13).
        let all =
            Ana::of_text("1=optimized,2=non-optimized,3=inaccessible,4=persistent-loss,5=change");
        let numbers: Vec<u8> = all
            .unwrap()
            .states()
            .values()
            .map(|state| state.0)
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4, 15]);
    }

    #[test]
    fn what_is_no_group_or_no_state_is_refused() {
        for (value, says) in [
            (json!("0=change"), "write 1 to 128"),
            (json!({"129": "change"}), "write 1 to 128"),
            (json!({"x": "change"}), "ANA group `x`"),
            (json!("2"), "write GROUP=STATE"),
            (json!("2=inacessible"), "unknown variant `inacessible`"),
            (json!("2=change,2=change"), "two states"),
            (json!({"2": "down"}), "unknown variant"),
            (json!(7), "states by ANA group"),
        ] {
            let error = serde_json::from_value::<Ana>(value)
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
