//! Errors of the control API: the kind and detail that the server's code returns, and the document
//! that a client receives.
//!
//! Nothing here depends on HTTP. `problem.rs` gives each kind its status code, title and type.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Problem;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request cannot be parsed, or would make the configuration invalid.
    Invalid,
    /// The object does not exist.
    NotFound,
    /// The object exists, or is in use.
    Conflict,
    /// Attached hosts would lose their drives, and the request does not consent to that.
    HostsAttached,
    /// The object does not match the request's precondition.
    PreconditionFailed,
    /// A reactor does not answer.
    NoAnswer,
    /// This program, or the system, failed.
    Failed,
}

/// Error of a request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Kind of the error.
    pub kind: Kind,
    /// Cause of the error, and the next step.
    pub detail: String,
    /// Errors of single parts of the request, where known.
    pub errors: Vec<FieldProblem>,
}

/// Error response (RFC 9457, problem+json).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Refusal)]
pub struct Document {
    /// Problem type, for programs: `urn:nvmirage:problem:` and the title with `-` for spaces.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// HTTP status code.
    pub status: u16,
    /// Problem type in a few words.
    pub title: String,
    /// Cause of the error, and the next step.
    pub detail: String,
    /// Errors of single parts of the request, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
}

/// Error of one part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// Part of the body, as a JSON pointer (RFC 6901).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Object, as in `controller vm1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Cause of the error, and the next step.
    pub detail: String,
}

/// An object of that kind in a sentence: configurations and paths have the plural of *medium*.
pub fn noun(kind: &str) -> &str {
    match kind {
        "media" => "medium",
        kind => kind,
    }
}

impl Refusal {
    /// An error of any kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Refusal {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// A request that cannot be parsed or carried out as it stands.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Refusal::new(Kind::Invalid, detail)
    }

    /// The same, at a known part of the body.
    pub fn invalid_at(pointer: String, detail: String) -> Self {
        let error = FieldProblem {
            pointer: Some(pointer),
            object: None,
            detail: detail.clone(),
        };
        Refusal {
            errors: vec![error],
            ..Refusal::invalid(detail)
        }
    }

    /// A request that would make the configuration invalid.
    pub fn of_problems(problems: &[Problem]) -> Self {
        let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let errors = problems.iter().map(|problem| FieldProblem {
            pointer: None,
            object: Some(problem.place.clone()),
            detail: problem.what.clone(),
        });
        Refusal {
            errors: errors.collect(),
            ..Refusal::invalid(lines.join("\n"))
        }
    }

    /// The object does not exist.
    pub fn not_found(kind: &str, name: &str) -> Self {
        let kind = noun(kind);
        let detail = format!("there is no {kind} `{name}`; `nvmirage ls` shows what there is");
        Refusal::new(Kind::NotFound, detail)
    }

    /// The object exists, or is in use.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Refusal::new(Kind::Conflict, detail)
    }

    /// The object does not match the request's precondition.
    pub fn precondition_failed(detail: impl Into<String>) -> Self {
        Refusal::new(Kind::PreconditionFailed, detail)
    }

    /// A reactor does not answer.
    pub fn no_answer(detail: impl Into<String>) -> Self {
        Refusal::new(Kind::NoAnswer, detail)
    }

    /// An error of this program, or of the system.
    pub fn failed(error: &anyhow::Error) -> Self {
        Refusal::new(Kind::Failed, in_a_line(error))
    }
}

/// The error and its causes in a line. A cause that the one before it repeats is left out.
pub fn in_a_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut before = String::new();
    for cause in error.chain() {
        let said = cause.to_string();
        if before.contains(&said) && !before.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&said);
        before = said;
    }
    text
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_that_is_said_already_is_not_repeated() {
        let missing = std::io::Error::other("no such thing");
        let error = Err::<(), _>(missing)
            .context("cannot create a: no such thing")
            .context("medium m")
            .unwrap_err();
        assert_eq!(
            in_a_line(&error),
            "medium m: cannot create a: no such thing"
        );
        assert_eq!(Refusal::failed(&error).to_string(), in_a_line(&error));
    }
}
