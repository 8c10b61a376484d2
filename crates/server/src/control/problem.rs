//! Error responses: problem details of RFC 9457.
//!
//! A [`Refusal`] becomes a response here: its kind selects the status code, title and type. Errors
//! of HTTP itself, such as an unknown path or a body that is too large, have no kind, and are
//! created as responses.

use api::refusal::{Document, Kind};
use api::{FieldProblem, Refusal};
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Prefix of problem types (RFC 9457, 3.1.1).
const TYPE: &str = "urn:nvmirage:problem:";

/// Error response.
#[derive(Clone, Debug)]
pub(super) struct Refused(Document);

impl Refused {
    /// An error with any status.
    pub(super) fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Self {
        Refused(Document {
            kind: format!("{TYPE}{}", title.replace(' ', "-")),
            status: status.as_u16(),
            title: title.into(),
            detail: detail.into(),
            errors: Vec::new(),
        })
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (status, title) = match refusal.kind {
            Kind::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid request"),
            Kind::NotFound => (StatusCode::NOT_FOUND, "not found"),
            Kind::Conflict => (StatusCode::CONFLICT, "conflict"),
            Kind::HostsAttached => (StatusCode::CONFLICT, "hosts attached"),
            Kind::PreconditionFailed => (StatusCode::PRECONDITION_FAILED, "changed meanwhile"),
            Kind::NoAnswer => (StatusCode::GATEWAY_TIMEOUT, "no answer"),
            Kind::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        let Refused(document) = Refused::new(status, title, refusal.detail);
        Refused(Document {
            errors: refusal.errors,
            ..document
        })
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

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refused(mut document) = self;
        shorten(&mut document.detail);
        for error in &mut document.errors {
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
        let status =
            StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, Json(document)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn body_of(refused: Refused, status: u16) -> String {
        let response = refused.into_response();
        assert_eq!(response.status(), status);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
        let body = response.into_body().collect().await.unwrap();
        String::from_utf8(body.to_bytes().into()).unwrap()
    }

    #[tokio::test]
    async fn each_kind_has_its_status_title_and_type() {
        for (kind, status, title, name) in [
            (Kind::Invalid, 422, "invalid request", "invalid-request"),
            (Kind::NotFound, 404, "not found", "not-found"),
            (Kind::Conflict, 409, "conflict", "conflict"),
            (Kind::HostsAttached, 409, "hosts attached", "hosts-attached"),
            (
                Kind::PreconditionFailed,
                412,
                "changed meanwhile",
                "changed-meanwhile",
            ),
            (Kind::NoAnswer, 504, "no answer", "no-answer"),
            (Kind::Failed, 500, "failed", "failed"),
        ] {
            let body = body_of(Refusal::new(kind, "why").into(), status).await;
            let expected = format!(
                r#"{{"type":"urn:nvmirage:problem:{name}","status":{status},"title":"{title}","detail":"why"}}"#
            );
            assert_eq!(body, expected);
        }
    }

    #[tokio::test]
    async fn errors_of_parts_are_kept() {
        let refusal = Refusal::invalid_at("/size".into(), "why".into());
        let body = body_of(refusal.into(), 422).await;
        assert_eq!(
            body,
            r#"{"type":"urn:nvmirage:problem:invalid-request","status":422,"title":"invalid request","detail":"why","errors":[{"pointer":"/size","detail":"why"}]}"#
        );
    }
}
