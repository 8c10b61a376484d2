//! `/v1/namespaces`: namespaces, which are parts of media.

use api::{NamespaceStatus, NewSize, config};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use utoipa_axum::routes;

use super::item::{self, Done, Shown};
use super::{Routes, Shared, body};
use crate::control::Refused;
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_namespaces, create_namespace))
        .routes(routes!(
            show_namespace,
            put_namespace,
            change_namespace,
            delete_namespace
        ))
}

/// List namespaces
#[utoipa::path(get, path = "/v1/namespaces", tag = "namespaces", responses((status = 200, body = Vec<NamespaceStatus>)))]
async fn list_namespaces(State(desk): Shared) -> Result<Json<Vec<NamespaceStatus>>, Refused> {
    item::list(desk).await
}

/// Create a namespace
#[utoipa::path(post, path = "/v1/namespaces", tag = "namespaces", request_body = config::Namespace, responses((status = 201, body = NamespaceStatus)))]
async fn create_namespace(
    State(desk): Shared,
    bytes: Bytes,
) -> Result<Shown<NamespaceStatus>, Refused> {
    item::create(desk, bytes).await
}

/// Get a namespace
#[utoipa::path(get, path = "/v1/namespaces/{name}", tag = "namespaces", responses((status = 200, body = NamespaceStatus)))]
async fn show_namespace(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<NamespaceStatus>, Refused> {
    item::show(desk, name).await
}

/// Create a namespace, or confirm that it exists unchanged
#[utoipa::path(put, path = "/v1/namespaces/{name}", tag = "namespaces", request_body = config::Namespace,
    responses((status = 200, description = "unchanged", body = NamespaceStatus), (status = 201, description = "created", body = NamespaceStatus)))]
async fn put_namespace(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<NamespaceStatus>, Refused> {
    item::put(desk, name, headers, bytes).await
}

/// Resize a namespace
#[utoipa::path(patch, path = "/v1/namespaces/{name}", tag = "namespaces", request_body = NewSize, responses((status = 204)))]
async fn change_namespace(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let NewSize { size, shrink } = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.resize(name, size, shrink);
    item::change::<NamespaceStatus>(desk, name, headers, work).await
}

/// Delete an unused namespace
#[utoipa::path(delete, path = "/v1/namespaces/{name}", tag = "namespaces", responses((status = 204)))]
async fn delete_namespace(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    item::change::<NamespaceStatus>(desk, name, headers, |s, name| s.delete_namespace(name)).await
}
