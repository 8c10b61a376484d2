//! `/v1`: the inventory of the server.

use api::Inventory;
use axum::Json;
use axum::extract::State;
use utoipa_axum::routes;

use super::{Routes, Shared, blocking};
use crate::control::Refused;
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(inventory))
}

/// Inventory of all objects
#[utoipa::path(get, path = "/v1", tag = "inventory", responses((status = 200, body = Inventory)))]
async fn inventory(State(desk): Shared) -> Result<Json<Inventory>, Refused> {
    blocking(desk, Supervisor::inventory).await.map(Json)
}
