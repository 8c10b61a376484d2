//! `/v1/configuration`: all of it, as a file would have it; and `/v1/stop`: the end.

use axum::{Json, extract::State, http::StatusCode};
use utoipa_axum::routes;

use super::{Routes, Shared, blocking};
use crate::{
    config::Config,
    control::{Refusal, Stopping},
};

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(read_configuration))
        .routes(routes!(stop))
}

/// What is served, as a configuration that serves the same
#[utoipa::path(get, path = "/v1/configuration", tag = "server", responses((status = 200, body = Config)))]
async fn read_configuration(State(supervisor): Shared) -> Result<Json<Config>, Refusal> {
    let configuration = blocking(supervisor, |s| s.configuration()).await?;
    Ok(Json(configuration))
}

/// End the server, as SIGTERM does; requests that are under way get their answers
#[utoipa::path(post, path = "/v1/stop", tag = "server", responses((status = 202, body = Stopping)))]
async fn stop(State(supervisor): Shared) -> (StatusCode, Json<Stopping>) {
    supervisor.ask_to_stop();
    let pid = std::process::id();
    (StatusCode::ACCEPTED, Json(Stopping { pid }))
}
