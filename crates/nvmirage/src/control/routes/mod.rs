//! What the server answers: one file for each resource, each with its `routes`.

mod controllers;
mod inventory;
mod log;
mod media;
mod namespaces;
mod partitions;
mod tenants;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
};
use serde::de::DeserializeOwned;

use super::{MAX_BODY_LEN, Refusal};
use crate::{config, supervisor::Supervisor};

/// Routes of one resource.
type Routes = Router<Arc<Supervisor>>;

/// What a route steers.
type Shared = State<Arc<Supervisor>>;

/// Everything that is answered.
pub(super) fn router(supervisor: Arc<Supervisor>) -> Router {
    Router::new()
        .merge(inventory::routes())
        .merge(log::routes())
        .merge(media::routes())
        .merge(partitions::routes())
        .merge(namespaces::routes())
        .merge(tenants::routes())
        .merge(controllers::routes())
        .fallback(unknown)
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
    config::from_json(bytes).map_err(Refusal::invalid)
}

/// Any other path.
async fn unknown() -> Refusal {
    Refusal {
        status: 404,
        title: "not found".into(),
        detail: "there are /v1, /v1/media, /v1/namespaces, /v1/controllers and /v1/tenants".into(),
    }
}
