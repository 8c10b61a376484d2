//! `/metrics`: all metrics, for a scraper. `/healthz`: whether the server works, for a supervisor.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::routes;

use super::{Routes, Shared, blocking};
use crate::control::Refused;
use crate::observe::{self, Format};

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(metrics))
        .routes(routes!(healthz))
}

/// All metrics, in OpenMetrics 1.0, Prometheus protocol buffers or Prometheus text, as `Accept`
/// requests
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, content_type = "text/plain", body = String)))]
async fn metrics(State(supervisor): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::asked_for(accept.unwrap_or_default());
    let snapshot = blocking(supervisor, |s| s.snapshot()).await?;
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    Ok((content_type, observe::metrics(&snapshot, format)).into_response())
}

/// Check that the server and all its reactors answer
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, content_type = "text/plain", body = String)))]
async fn healthz(State(supervisor): Shared) -> Result<Response, Refused> {
    // counters come from every reactor
    blocking(supervisor, |s| s.snapshot()).await?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, "ok\n").into_response())
}
