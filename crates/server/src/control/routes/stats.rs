//! `/v1/stats`: all counters, now and in the last minutes, for views that draw them.

use std::convert::Infallible;

use api::Stats;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::IntoResponse;
use utoipa_axum::routes;

use super::{Routes, Shared, blocking};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(stats))
        .routes(routes!(history))
}

/// All counters, from one moment
#[utoipa::path(get, path = "/v1/stats", tag = "server", responses((status = 200, body = Stats)))]
async fn stats(State(supervisor): Shared) -> Result<Json<Stats>, Refused> {
    let snapshot = blocking(supervisor, |s| s.snapshot()).await?;
    Ok(Json(snapshot.into()))
}

/// All counters of the last ten minutes, every five seconds
///
/// The oldest first. At most 8 MiB: with many controllers, of less than ten minutes.
#[utoipa::path(get, path = "/v1/stats/history", tag = "server", responses((status = 200, body = Vec<Stats>)))]
async fn history(State(supervisor): Shared) -> impl IntoResponse {
    let parts = supervisor.past.json();
    let len: usize = parts.iter().map(Bytes::len).sum();
    let parts = parts.into_iter().map(Ok::<_, Infallible>);
    let body = Body::from_stream(futures_util::stream::iter(parts));
    let head = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_LENGTH, len.to_string()),
    ];
    (head, body)
}
