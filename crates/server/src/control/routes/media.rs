//! `/v1/media`: media, with their timing and zones.

use api::{MOST_CELLS, MediumChange, MediumMap, MediumStatus, Refusal, config};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use reactor::maps::Wanted;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::item::{self, Done, Shown};
use super::{Routes, Shared, blocking, body};
use crate::control::Refused;
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_media, create_medium))
        .routes(routes!(
            show_medium,
            put_medium,
            change_medium,
            delete_medium
        ))
        .routes(routes!(map_medium))
}

/// List media
#[utoipa::path(get, path = "/v1/media", tag = "media", responses((status = 200, body = Vec<MediumStatus>)))]
async fn list_media(State(desk): Shared) -> Result<Json<Vec<MediumStatus>>, Refused> {
    item::list(desk).await
}

/// Create a medium
#[utoipa::path(post, path = "/v1/media", tag = "media", request_body = config::Medium, responses((status = 201, body = MediumStatus)))]
async fn create_medium(State(desk): Shared, bytes: Bytes) -> Result<Shown<MediumStatus>, Refused> {
    item::create(desk, bytes).await
}

/// Get a medium
#[utoipa::path(get, path = "/v1/media/{name}", tag = "media", responses((status = 200, body = MediumStatus)))]
async fn show_medium(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<MediumStatus>, Refused> {
    item::show(desk, name).await
}

/// Create a medium, or confirm that it exists unchanged
#[utoipa::path(put, path = "/v1/media/{name}", tag = "media", request_body = config::Medium,
    responses((status = 200, description = "unchanged", body = MediumStatus), (status = 201, description = "created", body = MediumStatus)))]
async fn put_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<MediumStatus>, Refused> {
    item::put(desk, name, headers, bytes).await
}

/// Requested part of a map
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MapQuery {
    /// Approximate maximum number of cells of the map, 1 to 4096; each cell covers as many lines or
    /// zones as that needs. Flash has at least one cell for each of its partitions.
    #[serde(default = "cells")]
    #[param(default = 1024, minimum = 1, maximum = 4096)]
    cells: u32,
    /// First zone listed individually.
    #[serde(default)]
    #[param(default = 0)]
    from: u32,
    /// Number of zones listed individually, up to 4096.
    #[serde(default = "cells")]
    #[param(default = 1024, maximum = 4096)]
    count: u32,
}

fn cells() -> u32 {
    1024
}

/// Internal state of a medium: flash lines, zones, keys and values
#[utoipa::path(get, path = "/v1/media/{name}/map", tag = "media", params(MapQuery), responses((status = 200, body = MediumMap)))]
async fn map_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    query: Result<Query<MapQuery>, QueryRejection>,
) -> Result<Json<MediumMap>, Refused> {
    let Query(query) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let MapQuery { cells, from, count } = query;
    if !(1..=MOST_CELLS).contains(&cells) || count > MOST_CELLS {
        let detail = format!(
            "cells = {cells}, count = {count}: a map has 1 to {MOST_CELLS} cells, and lists up to {MOST_CELLS} zones; request others with `from`"
        );
        return Err(Refusal::invalid(detail).into());
    }
    let wanted = Wanted {
        cells: Some(cells),
        zones: (from, count),
    };
    let map = blocking(desk, move |s| s.map(&name, wanted)).await?;
    Ok(Json(map))
}

/// Change timing parameters of a medium, or the state of its zones
#[utoipa::path(patch, path = "/v1/media/{name}", tag = "media", request_body = MediumChange, responses((status = 204)))]
async fn change_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let change: MediumChange = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.change_medium(name, &change);
    item::change::<MediumStatus>(desk, name, headers, work).await
}

/// Delete an unused medium
#[utoipa::path(delete, path = "/v1/media/{name}", tag = "media", responses((status = 204)))]
async fn delete_medium(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    item::change::<MediumStatus>(desk, name, headers, |s, name| s.delete_medium(name)).await
}
