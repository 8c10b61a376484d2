//! `/v1/stats`: all counters, for views that draw them.

use api::Stats;
use axum::Json;
use axum::extract::State;
use utoipa_axum::routes;

use super::{Routes, Shared, blocking};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(stats))
}

/// All counters, from one moment
#[utoipa::path(get, path = "/v1/stats", tag = "server", responses((status = 200, body = Stats)))]
async fn stats(State(supervisor): Shared) -> Result<Json<Stats>, Refused> {
    let snapshot = blocking(supervisor, |s| s.snapshot()).await?;
    Ok(Json(snapshot.into()))
}
