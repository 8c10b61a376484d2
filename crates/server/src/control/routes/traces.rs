//! `/v1/traces`: traces of controllers' commands.

use api::{TraceStatus, config};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use utoipa_axum::routes;

use super::item::{self, Done, Shown};
use super::{Routes, Shared};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_traces, create_trace))
        .routes(routes!(show_trace, put_trace, delete_trace))
}

/// List traces
#[utoipa::path(get, path = "/v1/traces", tag = "traces", responses((status = 200, body = Vec<TraceStatus>)))]
async fn list_traces(State(desk): Shared) -> Result<Json<Vec<TraceStatus>>, Refused> {
    item::list(desk).await
}

/// Start a trace
#[utoipa::path(post, path = "/v1/traces", tag = "traces", request_body = config::trace::Trace, responses((status = 201, body = TraceStatus)))]
async fn create_trace(State(desk): Shared, bytes: Bytes) -> Result<Shown<TraceStatus>, Refused> {
    item::create(desk, bytes).await
}

/// Get a trace
#[utoipa::path(get, path = "/v1/traces/{name}", tag = "traces", responses((status = 200, body = TraceStatus)))]
async fn show_trace(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<TraceStatus>, Refused> {
    item::show(desk, name).await
}

/// Start a trace, or confirm that it exists unchanged
#[utoipa::path(put, path = "/v1/traces/{name}", tag = "traces", request_body = config::trace::Trace,
    responses((status = 200, description = "unchanged", body = TraceStatus), (status = 201, description = "created", body = TraceStatus)))]
async fn put_trace(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<TraceStatus>, Refused> {
    item::put(desk, name, headers, bytes).await
}

/// Stop a trace, if it is running, and forget it; its file is kept
#[utoipa::path(delete, path = "/v1/traces/{name}", tag = "traces", responses((status = 204)))]
async fn delete_trace(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    item::change::<TraceStatus>(desk, name, headers, |s, name| s.delete_trace(name)).await
}
