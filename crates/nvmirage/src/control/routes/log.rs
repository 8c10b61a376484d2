//! `/v1/log`: which log lines are written, and how.

use axum::{Json, body::Bytes, routing::get};

use super::{Routes, body};
use crate::{config::log::Log, control::Refusal, logging};

pub(super) fn routes() -> Routes {
    Routes::new().route("/v1/log", get(read_log).patch(change_log))
}

async fn read_log() -> Json<Log> {
    Json(logging::now())
}

/// From the next line on.
async fn change_log(bytes: Bytes) -> Result<Json<Log>, Refusal> {
    let change: Log = body(&bytes)?;
    logging::change(&change).map_err(Refusal::invalid)?;
    let now = logging::now();
    tracing::info!("the log is changed: {}", shown(&now));
    Ok(Json(now))
}

fn shown(log: &Log) -> String {
    serde_json::to_string(log).unwrap_or_default()
}
