//! What the server answers: one file for each resource, each with its `routes`.
//!
//! A route is a function with `#[utoipa::path]`, and `.routes(routes!(function, ...))` puts it
//! there: functions of one path with different methods stand in one `routes!`. `/openapi.json` and
//! the book's list of routes are made of that; a test compares the book with them. Path parameters
//! and the problems that any route may answer are added in `openapi/mod.rs`.

mod configuration;
mod consent;
mod controllers;
mod events;
mod hosts;
mod inventory;
mod item;
mod log;
mod media;
mod metrics;
mod namespaces;
mod openapi;
mod partitions;
mod reactors;
mod stats;
mod tenants;
mod timing;
mod traces;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;

use super::limits::{CHANGES, READERS};
use super::{MAX_BODY_LEN, Refusal, dashboard};
use crate::config;
use crate::supervisor::Supervisor;

/// Routes of one resource.
type Routes = OpenApiRouter<Desk>;

/// What a route steers.
type Shared = State<Desk>;

/// What is steered, and where changes run.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    supervisor: Arc<Supervisor>,
    work: Handle,
    changes: Arc<Semaphore>,
    /// Places for those who read events.
    readers: Arc<Semaphore>,
}

impl Desk {
    /// Changes run on threads of that runtime.
    pub(super) fn new(supervisor: Arc<Supervisor>, work: Handle) -> Self {
        Desk {
            supervisor,
            work,
            changes: Arc::new(Semaphore::new(CHANGES)),
            readers: Arc::new(Semaphore::new(READERS)),
        }
    }
}

/// Routes of all resources.
fn resources() -> Routes {
    Routes::new()
        .merge(inventory::routes())
        .merge(configuration::routes())
        .merge(log::routes())
        .merge(metrics::routes())
        .merge(stats::routes())
        .merge(reactors::routes())
        .merge(media::routes())
        .merge(timing::routes())
        .merge(partitions::routes())
        .merge(namespaces::routes())
        .merge(tenants::routes())
        .merge(controllers::routes())
        .merge(hosts::routes())
        .merge(traces::routes())
        .merge(events::routes())
        .merge(openapi::routes())
}

/// Everything that is answered.
pub(super) fn router(desk: Desk) -> Router {
    let (routes, _) = resources().split_for_parts();
    routes
        .merge(dashboard::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_LEN))
        .with_state(desk)
}

impl std::ops::Deref for Desk {
    type Target = Supervisor;

    fn deref(&self) -> &Supervisor {
        &self.supervisor
    }
}

/// Looks something up on a thread that may block, as it may wait for a change or a reactor.
async fn blocking<T: Send + 'static>(
    desk: Desk,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(move || work(&desk.supervisor))
        .await
        .unwrap_or_else(|error| Err(Refusal::failed(&error.into())))
}

/// Changes something when its turn comes. A change goes on where whoever asked is gone.
async fn changing<T: Send + 'static>(
    desk: Desk,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let place = desk.changes.clone().acquire_owned().await;
    let place = place.map_err(|error| Refusal::failed(&error.into()))?;
    let supervisor = desk.supervisor.clone();
    // the thread is started by a thread of that runtime, and stands where that one does
    let change = desk.work.spawn(async {
        let change = tokio::task::spawn_blocking(move || work(&supervisor)).await;
        drop(place);
        change
    });
    match change.await {
        Ok(Ok(changed)) => changed,
        Ok(Err(error)) | Err(error) => Err(Refusal::failed(&error.into())),
    }
}

/// What a request says.
fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    config::from_json(bytes)
}

/// Any other path.
async fn unknown(uri: Uri) -> Refusal {
    let detail = format!("unknown path {}; /openapi.json lists the paths", uri.path());
    Refusal::new(StatusCode::NOT_FOUND, "not found", detail)
}

/// A path that has other methods, which the header `Allow` names.
async fn other_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed",
        "method not supported on this path: the header `Allow` and /openapi.json list the supported ones",
    )
}
