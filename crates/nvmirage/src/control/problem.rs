//! Why a request is refused: problem details of RFC 9457.

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

/// Why a request was refused (RFC 9457, problem+json).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The kind of problem, in a few words.
    pub(crate) title: String,
    /// What is wrong and what to do about it.
    pub(crate) detail: String,
}

impl Refusal {
    /// A request that cannot be understood or carried out as it stands.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Refusal {
            status: 422,
            title: "invalid request".into(),
            detail: detail.into(),
        }
    }

    /// The object does not exist.
    pub(crate) fn not_found(kind: &str, name: &str) -> Self {
        Refusal {
            status: 404,
            title: "not found".into(),
            detail: format!("there is no {kind} `{name}`; `nvmirage ls` shows what there is"),
        }
    }

    /// The object exists, or is in use.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Refusal {
            status: 409,
            title: "conflict".into(),
            detail: detail.into(),
        }
    }

    /// Our own fault, or the system's.
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        Refusal {
            status: 500,
            title: "failed".into(),
            detail: format!("{error:#}"),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, Json(self)).into_response()
    }
}
