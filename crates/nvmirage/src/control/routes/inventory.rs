//! `/v1`: everything that is served.

use axum::{Json, extract::State, routing::get};

use super::{Routes, Shared, blocking};
use crate::{
    control::{Inventory, Refusal},
    supervisor::Supervisor,
};

pub(super) fn routes() -> Routes {
    Routes::new().route("/v1", get(inventory))
}

async fn inventory(State(supervisor): Shared) -> Result<Json<Inventory>, Refusal> {
    blocking(supervisor, Supervisor::inventory).await.map(Json)
}
