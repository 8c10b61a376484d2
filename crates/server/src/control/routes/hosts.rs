//! `/v1/hosts`: attached hosts, by controller. Read-only: hosts attach and detach on their own.

use api::HostStatus;
use axum::Json;
use axum::extract::{Path, State};
use utoipa_axum::routes;

use super::item::{self, Shown};
use super::{Routes, Shared};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_hosts))
        .routes(routes!(show_host))
}

/// List attached hosts
#[utoipa::path(get, path = "/v1/hosts", tag = "hosts", responses((status = 200, body = Vec<HostStatus>)))]
async fn list_hosts(State(desk): Shared) -> Result<Json<Vec<HostStatus>>, Refused> {
    item::list(desk).await
}

/// Get the host of a controller; 404 if none is attached
#[utoipa::path(get, path = "/v1/hosts/{name}", tag = "hosts", responses((status = 200, body = HostStatus)))]
async fn show_host(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<HostStatus>, Refused> {
    item::show(desk, name).await
}
