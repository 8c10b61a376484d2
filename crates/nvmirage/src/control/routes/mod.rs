//! What the server answers: one file for each resource, each with its `routes`.
//!
//! A route is a function with `#[utoipa::path]`, and `.routes(routes!(function, ...))` puts it there: functions of one path
//! with different methods stand in one `routes!`. `/openapi.json` and the book's list of routes are made of that; a test
//! compares the book with them. Path parameters and the problems that any route may answer are added in `openapi.rs`.

mod configuration;
mod controllers;
mod hosts;
mod inventory;
mod item;
mod log;
mod media;
mod namespaces;
mod openapi;
mod partitions;
mod reactors;
mod tenants;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, Uri},
};
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;

use super::{MAX_BODY_LEN, Refusal};
use crate::{config, supervisor::Supervisor};

/// Routes of one resource.
type Routes = OpenApiRouter<Arc<Supervisor>>;

/// What a route steers.
type Shared = State<Arc<Supervisor>>;

/// Routes of all resources.
fn resources() -> Routes {
    Routes::new()
        .merge(inventory::routes())
        .merge(configuration::routes())
        .merge(log::routes())
        .merge(reactors::routes())
        .merge(media::routes())
        .merge(partitions::routes())
        .merge(namespaces::routes())
        .merge(tenants::routes())
        .merge(controllers::routes())
        .merge(hosts::routes())
        .merge(openapi::routes())
}

/// Everything that is answered.
pub(super) fn router(supervisor: Arc<Supervisor>) -> Router {
    let (routes, _) = resources().split_for_parts();
    routes
        .fallback(unknown)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_LEN))
        .with_state(supervisor)
}

/// Runs one request on a thread that may block: making a controller waits for its reactor.
async fn blocking<T: Send + 'static>(
    supervisor: Arc<Supervisor>,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(move || work(&supervisor))
        .await
        .unwrap_or_else(|error| Err(Refusal::failed(&error.into())))
}

/// What a request says.
fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    config::from_json(bytes)
}

/// Any other path.
async fn unknown(uri: Uri) -> Refusal {
    let detail = format!(
        "there is nothing at {}; /openapi.json says what there is",
        uri.path()
    );
    Refusal::new(StatusCode::NOT_FOUND, "not found", detail)
}

/// A path that has other methods, which the header `Allow` names.
async fn other_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed",
        "this path has other methods: the header `Allow` names them, and /openapi.json",
    )
}
