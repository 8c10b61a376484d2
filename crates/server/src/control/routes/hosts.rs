//! `/v1/hosts`: attached hosts, by controller. Hosts attach and detach on their own; those over
//! NVMe/TCP, NBD or vhost-user-blk can be disconnected.

use api::{AssociationStatus, Disconnection, HostStatus};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use utoipa_axum::routes;

use super::item::{self, Shown};
use super::{Routes, Shared, body, changing};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_hosts))
        .routes(routes!(show_host))
        .routes(routes!(disconnect))
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

/// Disconnect hosts over NVMe/TCP, NBD or vhost-user-blk; returns those that were connected. They
/// may come again
#[utoipa::path(post, path = "/v1/hosts/{name}/disconnect", tag = "hosts", request_body = Disconnection, responses((status = 200, body = Vec<AssociationStatus>)))]
async fn disconnect(
    State(desk): Shared,
    Path(name): Path<String>,
    bytes: Bytes,
) -> Result<Json<Vec<AssociationStatus>>, Refused> {
    let wanted: Disconnection = body(&bytes)?;
    changing(desk, move |s| s.disconnect(&name, &wanted))
        .await
        .map(Json)
}
