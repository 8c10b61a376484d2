//! `/v1/configuration`, the running configuration as a file; `/v1/reload`; `/v1/process`,
//! `/v1/upgrade` and `/v1/stop`.

use api::config::Config;
use api::{ProcessStatus, Reload, ReloadRequest, Stopping, UpgradeRequest, Upgrading};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::routes;

use super::consent::{self, Consent};
use super::{Routes, Shared, blocking, body, changing};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(read_configuration))
        .routes(routes!(reload))
        .routes(routes!(stop))
        .routes(routes!(read_process))
        .routes(routes!(upgrade))
}

/// The running configuration, as a configuration file that serves the same
#[utoipa::path(get, path = "/v1/configuration", tag = "server", responses((status = 200, body = Config)))]
async fn read_configuration(State(supervisor): Shared) -> Result<Json<Config>, Refused> {
    let configuration = blocking(supervisor, |s| s.configuration()).await?;
    Ok(Json(configuration))
}

/// Reload the configuration file and apply it
#[utoipa::path(post, path = "/v1/reload", tag = "server", request_body = ReloadRequest, responses((status = 200, body = Reload)))]
async fn reload(State(desk): Shared, bytes: Bytes) -> Result<Json<Reload>, Refused> {
    let request: ReloadRequest = if bytes.is_empty() {
        ReloadRequest::default()
    } else {
        body(&bytes)?
    };
    changing(desk, move |s| s.reload(request)).await.map(Json)
}

/// The server's process, and what ended the one before it
#[utoipa::path(get, path = "/v1/process", tag = "server", responses((status = 200, body = ProcessStatus)))]
async fn read_process(State(supervisor): Shared) -> Result<Json<ProcessStatus>, Refused> {
    let process = blocking(supervisor, |s| Ok(s.process())).await?;
    Ok(Json(process))
}

/// Replace the server's program, with hosts attached; the reply comes when no command is in flight,
/// just before the other program takes over
#[utoipa::path(post, path = "/v1/upgrade", tag = "server", request_body = UpgradeRequest, responses((status = 202, body = Upgrading)))]
async fn upgrade(
    State(desk): Shared,
    bytes: Bytes,
) -> Result<(StatusCode, Json<Upgrading>), Refused> {
    let request: UpgradeRequest = body(&bytes)?;
    let prepared = changing(desk.clone(), move |s| s.prepare_upgrade(&request));
    let upgrading = prepared.await?;
    tokio::task::spawn_blocking(move || desk.supervisor.hand_over());
    Ok((StatusCode::ACCEPTED, Json(upgrading)))
}

/// Stop the server; attached hosts lose their drives only with `detach_hosts`, and requests in
/// flight are answered
#[utoipa::path(post, path = "/v1/stop", tag = "server", params(Consent), responses((status = 202, body = Stopping)))]
async fn stop(
    State(desk): Shared,
    given: consent::Given,
) -> Result<(StatusCode, Json<Stopping>), Refused> {
    let consent = consent::of(given)?;
    blocking(desk, move |s| s.stop_unless_used(consent)).await?;
    let pid = std::process::id();
    Ok((StatusCode::ACCEPTED, Json(Stopping { pid })))
}
