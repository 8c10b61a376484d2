//! Parameters by name, with unit, range, and time of change.
//!
//! The same table serves the configuration, the control socket, `explain` and the book, so that a
//! parameter has one name and one unit everywhere. Values are whole numbers; their text form reads
//! back as exactly the same number.
//!
//! Invariant: every field of [`Parameters`] except the drive's size is in the table of its kind,
//! once.
//!
//! Not included: changes of a running model; this module only says whether they are allowed.

mod check;
mod shape;
mod table;
mod value;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use self::shape::{MIN_LINES, Shape};
pub use self::table::Parameter;
pub use self::value::{Unit, Value};
use crate::Parameters;
pub use crate::units::PAGE_BYTES;

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Low-latency non-volatile memory.
    Nvm,
    /// Key-value.
    Kv,
    /// Conventional flash.
    Flash,
    /// Zoned flash.
    Zns,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Nvm, Kind::Kv, Kind::Flash, Kind::Zns];

    /// Its name, as in `kind = "nvm"`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Nvm => "nvm",
            Kind::Kv => "kv",
            Kind::Flash => "flash",
            Kind::Zns => "zns",
        }
    }

    /// The parameters of a model of this kind.
    pub fn parameters(self) -> impl Iterator<Item = &'static Parameter> {
        table::of(self)
    }

    /// The parameter of that name.
    ///
    /// # Errors
    /// There is none; the error names those that there are.
    pub fn parameter(self, name: &str) -> Result<&'static Parameter, InvalidParameter> {
        let mut all = self.parameters();
        all.find(|p| p.name == name)
            .ok_or_else(|| InvalidParameter::Unknown {
                name: name.to_owned(),
                kind: self,
            })
    }
}

/// When a parameter may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At any time: commands that arrive from then on go by it.
    Live,
    /// At the next reset of the controller: no command may be in flight.
    Reset,
    /// Only when the drive is made.
    Fixed,
}

impl Change {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Change::Live => "live",
            Change::Reset => "reset",
            Change::Fixed => "fixed",
        }
    }
}

/// Activity of a drive while a parameter is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is being made: everything may change.
    Creation,
    /// Its controller is reset and no command is in flight.
    Reset,
    /// It works.
    Running,
}

/// Parameters that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidParameter {
    /// No parameter is called so.
    #[error("there is no parameter `{name}` for a model of kind {}", kind.name())]
    Unknown {
        /// The requested name.
        name: String,
        /// In this kind.
        kind: Kind,
    },
    /// Its text says nothing.
    #[error("{name} = \"{text}\": {why}")]
    Text {
        /// The parameter.
        name: &'static str,
        /// The text as written.
        text: String,
        /// The advice: text to write.
        why: String,
    },
    /// Outside of its range.
    #[error("{name} = \"{value}\": write {}", parameter_range(*kind, name))]
    Range {
        /// The parameter.
        name: &'static str,
        /// Its kind.
        kind: Kind,
        /// The value.
        value: Value,
    },
    /// It may not change now.
    #[error("{name} is a {} parameter: {}", change.name(), refusal(*change))]
    Refused {
        /// The parameter.
        name: &'static str,
        /// When it may.
        change: Change,
    },
    /// Values that do not fit each other.
    #[error("{0}")]
    Unfit(String),
}

fn parameter_range(kind: Kind, name: &str) -> String {
    let parameter = kind.parameter(name);
    parameter.map_or_else(|_| String::new(), Parameter::range)
}

fn refusal(change: Change) -> &'static str {
    match change {
        Change::Live => "it can change at any time",
        Change::Reset => {
            "it can change only at a controller reset with nothing in flight; write it into the configuration"
        }
        Change::Fixed => "it is fixed when the drive is created; create another one",
    }
}

impl Parameters {
    /// Which kind of model they are for.
    pub fn kind(&self) -> Kind {
        match self {
            Parameters::Nvm(_) => Kind::Nvm,
            Parameters::Kv(_) => Kind::Kv,
            Parameters::Flash(_) => Kind::Flash,
            Parameters::Zones(_) => Kind::Zns,
        }
    }

    /// A parameter's value.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn get(&self, name: &str) -> Result<Value, InvalidParameter> {
        Ok(self.kind().parameter(name)?.get(self))
    }

    /// Sets a parameter from its text, as [`Value`] shows it or as people write it. On an error
    /// nothing has changed.
    ///
    /// Whether it fits the others is not looked at: that is [`Parameters::check`].
    ///
    /// # Errors
    /// There is no such parameter, its text or value is wrong, or it may not change at this moment.
    pub fn set(&mut self, name: &str, text: &str, moment: Moment) -> Result<(), InvalidParameter> {
        let parameter = self.kind().parameter(name)?;
        let value = parameter.parse(self.kind(), text)?;
        let may = match parameter.change {
            Change::Live => true,
            Change::Reset => moment != Moment::Running,
            Change::Fixed => moment == Moment::Creation,
        };
        // Saying once more what is so already changes nothing.
        if !may && parameter.get(self) != value {
            return Err(InvalidParameter::Refused {
                name: parameter.name,
                change: parameter.change,
            });
        }
        parameter.put(self, value);
        Ok(())
    }
}
