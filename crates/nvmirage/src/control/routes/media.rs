//! `/v1/media`: where bytes live, with their timing and zones.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::HeaderMap,
};
use utoipa_axum::routes;

use super::{
    Routes, Shared, body,
    item::{self, Done, Shown},
};
use crate::{
    config,
    control::{MediumChange, MediumStatus, Refusal},
    supervisor::Supervisor,
};

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_media, create_medium))
        .routes(routes!(
            show_medium,
            put_medium,
            change_medium,
            delete_medium
        ))
}

/// All media
#[utoipa::path(get, path = "/v1/media", tag = "media", responses((status = 200, body = Vec<MediumStatus>)))]
async fn list_media(State(desk): Shared) -> Result<Json<Vec<MediumStatus>>, Refusal> {
    item::list(desk).await
}

/// Make a medium
#[utoipa::path(post, path = "/v1/media", tag = "media", request_body = config::Medium, responses((status = 201, body = MediumStatus)))]
async fn create_medium(State(desk): Shared, bytes: Bytes) -> Result<Shown<MediumStatus>, Refusal> {
    item::create(desk, bytes).await
}

/// One medium
#[utoipa::path(get, path = "/v1/media/{name}", tag = "media", responses((status = 200, body = MediumStatus)))]
async fn show_medium(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<MediumStatus>, Refusal> {
    item::show(desk, name).await
}

/// Make a medium, or confirm that it is there and the same
#[utoipa::path(put, path = "/v1/media/{name}", tag = "media", request_body = config::Medium,
    responses((status = 200, description = "it is there and the same", body = MediumStatus), (status = 201, description = "it is made", body = MediumStatus)))]
async fn put_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<MediumStatus>, Refusal> {
    item::put(desk, name, headers, bytes).await
}

/// Change parameters of a medium's timing, or have it give up zones
#[utoipa::path(patch, path = "/v1/media/{name}", tag = "media", request_body = MediumChange, responses((status = 204)))]
async fn change_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refusal> {
    let change: MediumChange = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.change_medium(name, &change);
    item::change::<MediumStatus>(desk, name, headers, work).await
}

/// Delete a medium that nothing uses
#[utoipa::path(delete, path = "/v1/media/{name}", tag = "media", responses((status = 204)))]
async fn delete_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refusal> {
    item::change::<MediumStatus>(desk, name, headers, |s, name| s.delete_medium(name)).await
}
