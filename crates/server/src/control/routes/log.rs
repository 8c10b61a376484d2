//! `/v1/log`: the log filter and format.

use api::Refusal;
use api::config::log::Log;
use axum::Json;
use axum::body::Bytes;
use utoipa_axum::routes;

use super::{Routes, body};
use crate::control::Refused;
use crate::logging;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(read_log, change_log))
}

/// Log filter and format
#[utoipa::path(get, path = "/v1/log", tag = "log", responses((status = 200, body = Log)))]
async fn read_log() -> Json<Log> {
    Json(logging::now())
}

/// Change the log filter and format, from the next line on
#[utoipa::path(patch, path = "/v1/log", tag = "log", request_body = Log, responses((status = 200, body = Log)))]
async fn change_log(bytes: Bytes) -> Result<Json<Log>, Refused> {
    let change: Log = body(&bytes)?;
    logging::change(&change).map_err(Refusal::invalid)?;
    let now = logging::now();
    tracing::info!("log settings changed: {}", shown(&now));
    Ok(Json(now))
}

fn shown(log: &Log) -> String {
    serde_json::to_string(log).unwrap_or_default()
}
