//! `/v1/reactors`: the serving threads, by their index in the configuration.

use api::ReactorStatus;
use axum::Json;
use axum::extract::{Path, State};
use utoipa_axum::routes;

use super::item::{self, Shown};
use super::{Routes, Shared};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_reactors))
        .routes(routes!(show_reactor))
}

/// List reactors
#[utoipa::path(get, path = "/v1/reactors", tag = "reactors", responses((status = 200, body = Vec<ReactorStatus>)))]
async fn list_reactors(State(desk): Shared) -> Result<Json<Vec<ReactorStatus>>, Refused> {
    item::list(desk).await
}

/// Get a reactor by its number, from 0
#[utoipa::path(get, path = "/v1/reactors/{name}", tag = "reactors", responses((status = 200, body = ReactorStatus)))]
async fn show_reactor(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<ReactorStatus>, Refused> {
    item::show(desk, name).await
}
