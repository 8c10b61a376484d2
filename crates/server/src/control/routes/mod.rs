//! The routes of the server: one file for each resource, each with its `routes`.
//!
//! A route is a function with `#[utoipa::path]`; `.routes(routes!(function, ...))` registers it.
//! Functions of one path with different methods belong in one `routes!`. `/openapi.json` and the
//! book's list of routes are generated from these; a test compares the book with them.
//! `openapi/mod.rs` adds path parameters, and the problems that any route may answer with.

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
mod unread;

use std::sync::Arc;

use api::Refusal;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;

use super::limits::{CHANGES, READERS};
use super::past::{EVERY, Past};
use super::{MAX_BODY_LEN, Refused, dashboard};
use crate::observe::now;
use crate::supervisor::Supervisor;

/// Routes of one resource.
type Routes = OpenApiRouter<Desk>;

/// The state of a route.
type Shared = State<Desk>;

/// The supervisor, and the runtime on which changes run.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    supervisor: Arc<Supervisor>,
    work: Handle,
    changes: Arc<Semaphore>,
    /// Permits for readers of events.
    readers: Arc<Semaphore>,
    /// Counters of the last minutes.
    past: Arc<Past>,
}

impl Desk {
    /// Changes run on threads of the runtime `work`.
    pub(super) fn new(supervisor: Arc<Supervisor>, work: Handle) -> Self {
        Desk {
            supervisor,
            work,
            changes: Arc::new(Semaphore::new(CHANGES)),
            readers: Arc::new(Semaphore::new(READERS)),
            past: Arc::default(),
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

/// The router of all routes.
pub(super) fn router(desk: Desk) -> Router {
    let (routes, document) = resources().split_for_parts();
    unread::refused(routes, document)
        .merge(dashboard::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_LEN))
        .with_state(desk)
}

/// Samples all counters periodically, for views that are opened later. Never returns.
pub(super) async fn remember(desk: Desk) {
    let mut next = tokio::time::interval(EVERY);
    // after a sleep of the machine, one sample
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        next.tick().await;
        // before the sample, so that what happens meanwhile is in the next one
        let Ok(stir) = blocking(desk.clone(), |s| Ok(s.stir())).await else {
            continue;
        };
        let (time, day) = now();
        if desk.past.repeat(stir, time.0, day) {
            continue;
        }
        // a server that cannot answer now has a gap
        if let Ok(snapshot) = blocking(desk.clone(), |s| s.snapshot()).await {
            desk.past.add(stir, &snapshot.into());
        }
    }
}

impl std::ops::Deref for Desk {
    type Target = Supervisor;

    fn deref(&self) -> &Supervisor {
        &self.supervisor
    }
}

/// Runs a look-up on a thread that may block: it may wait for a change or a reactor.
async fn blocking<T: Send + 'static>(
    desk: Desk,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refused> {
    let looked = tokio::task::spawn_blocking(move || work(&desk.supervisor)).await;
    let looked = looked.map_err(|error| Refusal::failed(&error.into()))?;
    Ok(looked?)
}

/// Runs a change when its turn comes. The change completes even if its client is gone.
async fn changing<T: Send + 'static>(
    desk: Desk,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refused> {
    let place = desk.changes.clone().acquire_owned().await;
    let place = place.map_err(|error| Refusal::failed(&error.into()))?;
    let supervisor = desk.supervisor.clone();
    // spawned from a thread of that runtime, the new thread inherits that thread's nice value
    let change = desk.work.spawn(async {
        let change = tokio::task::spawn_blocking(move || work(&supervisor)).await;
        drop(place);
        change
    });
    match change.await {
        Ok(Ok(changed)) => Ok(changed?),
        Ok(Err(error)) | Err(error) => Err(Refusal::failed(&error.into()).into()),
    }
}

/// Parses the body of a request.
fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    api::from_json(bytes)
}

/// The error for an unknown path.
async fn unknown(uri: Uri) -> Refused {
    let detail = format!("unknown path {}; /openapi.json lists the paths", uri.path());
    Refused::new(StatusCode::NOT_FOUND, "not found", detail)
}

/// The error for an unknown method; the header `Allow` names the valid ones.
async fn other_method() -> Refused {
    Refused::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed",
        "method not supported on this path: the header `Allow` and /openapi.json list the supported ones",
    )
}
