//! Error responses: problem details of RFC 9457.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Problem;

/// Prefix of problem types (RFC 9457, 3.1.1).
const TYPE: &str = "urn:nvmirage:problem:";

/// Error response (RFC 9457, problem+json).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Refusal {
    /// Problem type, for programs: `urn:nvmirage:problem:` and the title with `-` for spaces.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// HTTP status code.
    pub(crate) status: u16,
    /// Problem type in a few words.
    pub(crate) title: String,
    /// Cause of the error, and the next step.
    pub(crate) detail: String,
    /// Errors of single parts of the request, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldProblem>,
}

/// Error of one part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FieldProblem {
    /// Part of the body, as a JSON pointer (RFC 6901).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pointer: Option<String>,
    /// Object, as in `controller vm1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    /// Cause of the error, and the next step.
    pub(crate) detail: String,
}

impl Refusal {
    /// An error with any status.
    pub(crate) fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Self {
        Refusal {
            kind: format!("{TYPE}{}", title.replace(' ', "-")),
            status: status.as_u16(),
            title: title.into(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// A request that cannot be understood or carried out as it stands.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid request", detail)
    }

    /// The same, at a known part of the body.
    pub(crate) fn invalid_at(pointer: String, detail: String) -> Self {
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
    pub(crate) fn of_problems(problems: &[Problem]) -> Self {
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
    pub(crate) fn not_found(kind: &str, name: &str) -> Self {
        let detail = format!("there is no {kind} `{name}`; `nvmirage ls` shows what there is");
        Refusal::new(StatusCode::NOT_FOUND, "not found", detail)
    }

    /// The object exists, or is in use.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Refusal::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The object does not match the request's precondition.
    pub(crate) fn changed(detail: impl Into<String>) -> Self {
        Refusal::new(StatusCode::PRECONDITION_FAILED, "changed meanwhile", detail)
    }

    /// A reactor does not answer.
    pub(crate) fn no_answer(detail: impl Into<String>) -> Self {
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "no answer", detail)
    }

    /// An error of this program, or of the system.
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Refusal::new(status, "failed", format!("{error:#}"))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

/// Most bytes of a text in a response, which may quote the client, several times.
const MAX_TEXT_LEN: usize = 16 << 10;

/// Most bytes of a word in a longer text.
const CUT_WORD_LEN: usize = 256;

/// Shortens a text that is too long: first its longest words, which a client may have sent, then
/// the whole.
fn shorten(text: &mut String) {
    if text.len() <= MAX_TEXT_LEN {
        return;
    }
    let words = text.split_inclusive(char::is_whitespace);
    let mut short: String = words
        .map(|word| {
            if word.len() > CUT_WORD_LEN {
                format!("{}… ", &word[..word.floor_char_boundary(CUT_WORD_LEN)])
            } else {
                word.to_owned()
            }
        })
        .collect();
    if short.len() > MAX_TEXT_LEN {
        short.truncate(short.floor_char_boundary(MAX_TEXT_LEN));
        short.push('…');
    }
    *text = short;
}

impl IntoResponse for Refusal {
    fn into_response(mut self) -> Response {
        shorten(&mut self.detail);
        for error in &mut self.errors {
            let FieldProblem {
                pointer,
                object,
                detail,
            } = error;
            [pointer.as_mut(), object.as_mut(), Some(detail)]
                .into_iter()
                .flatten()
                .for_each(shorten);
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, Json(self)).into_response()
    }
}
