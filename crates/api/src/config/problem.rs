//! Problems of a configuration, and their collection object by object.
//!
//! Each object checks its own keys and appends what it finds under its name. Checks between objects
//! are in `validate`.

use std::fmt;

use super::object::Object;

/// One problem, and how to solve it.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// Object, as in `controller vm1`.
    pub place: String,
    /// Problem, and what to write.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Collects problems of one object.
pub(super) struct Place<'a> {
    pub(super) name: String,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Place<'_> {
    pub(super) fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(Problem {
            place: self.name.clone(),
            what: what.into(),
        });
    }

    pub(super) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.problem(what());
        }
    }

    /// Checks each key by itself.
    pub(super) fn keys(&mut self, object: &impl Object) {
        for wrong in object.wrong_keys() {
            self.problem(wrong);
        }
    }
}

/// `prefix a, b, c`, or nothing where there are none.
pub(super) fn list<'a>(prefix: &str, names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("{prefix} {}", names.join(", "))
}
