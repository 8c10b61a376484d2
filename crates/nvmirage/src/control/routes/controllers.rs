//! `/v1/controllers`: what hosts attach to, the namespaces they have and where their queues live.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::HeaderMap,
};
use utoipa_axum::routes;

use super::{
    Routes, Shared, blocking, body,
    item::{self, Done, Item, Shown},
};
use crate::{
    config,
    control::{Attachment, ControllerStatus, NewPlacement, Refusal},
    observe::LatencyReport,
    supervisor::Supervisor,
};

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_controllers, create_controller))
        .routes(routes!(show_controller, put_controller, delete_controller))
        .routes(routes!(attach))
        .routes(routes!(put_attachment, detach))
        .routes(routes!(move_queues))
        .routes(routes!(latency))
}

/// All controllers
#[utoipa::path(get, path = "/v1/controllers", tag = "controllers", responses((status = 200, body = Vec<ControllerStatus>)))]
async fn list_controllers(State(desk): Shared) -> Result<Json<Vec<ControllerStatus>>, Refusal> {
    item::list(desk).await
}

/// Make a controller
#[utoipa::path(post, path = "/v1/controllers", tag = "controllers", request_body = config::Controller, responses((status = 201, body = ControllerStatus)))]
async fn create_controller(
    State(desk): Shared,
    bytes: Bytes,
) -> Result<Shown<ControllerStatus>, Refusal> {
    item::create(desk, bytes).await
}

/// One controller
#[utoipa::path(get, path = "/v1/controllers/{name}", tag = "controllers", responses((status = 200, body = ControllerStatus)))]
async fn show_controller(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<ControllerStatus>, Refusal> {
    item::show(desk, name).await
}

/// Make a controller, or confirm that it is there and the same
#[utoipa::path(put, path = "/v1/controllers/{name}", tag = "controllers", request_body = config::Controller,
    responses((status = 200, description = "it is there and the same", body = ControllerStatus), (status = 201, description = "it is made", body = ControllerStatus)))]
async fn put_controller(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<ControllerStatus>, Refusal> {
    item::put(desk, name, headers, bytes).await
}

/// Delete a controller that nothing uses
#[utoipa::path(delete, path = "/v1/controllers/{name}", tag = "controllers", responses((status = 204)))]
async fn delete_controller(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refusal> {
    item::change::<ControllerStatus>(desk, name, headers, |s, name| s.delete_controller(name)).await
}

/// Give a namespace to a controller
#[utoipa::path(post, path = "/v1/controllers/{name}/namespaces", tag = "controllers", request_body = Attachment, responses((status = 204)))]
async fn attach(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refusal> {
    let Attachment { namespace } = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.attach(&namespace, name);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Give a namespace to a controller, or confirm that it has it
#[utoipa::path(put, path = "/v1/controllers/{name}/namespaces/{namespace}", tag = "controllers", responses((status = 204)))]
async fn put_attachment(
    State(desk): Shared,
    Path((name, namespace)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Done, Refusal> {
    let work = move |s: &Supervisor, name: &str| {
        let controller = ControllerStatus::named(s, name)?;
        match controller.config.namespaces.contains(&namespace) {
            true => Ok(()),
            false => s.attach(&namespace, name),
        }
    };
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Take a namespace from a controller
#[utoipa::path(delete, path = "/v1/controllers/{name}/namespaces/{namespace}", tag = "controllers", responses((status = 204)))]
async fn detach(
    State(desk): Shared,
    Path((name, namespace)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Done, Refusal> {
    let work = move |s: &Supervisor, name: &str| s.detach(&namespace, name);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Move queues of a controller to other reactors
#[utoipa::path(put, path = "/v1/controllers/{name}/placement", tag = "controllers", request_body = NewPlacement, responses((status = 204)))]
async fn move_queues(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refusal> {
    let NewPlacement { reactors, queue } = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.move_queues(name, &reactors, queue);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// How long a controller's commands take, and where
#[utoipa::path(get, path = "/v1/controllers/{name}/latency", tag = "controllers", responses((status = 200, body = LatencyReport)))]
async fn latency(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Json<LatencyReport>, Refusal> {
    let report = move |s: &Supervisor| {
        let snapshot = s.snapshot()?;
        let mut controllers = snapshot.controllers.iter();
        let found = controllers.find(|one| one.status.config.name == name);
        let found = found.ok_or_else(|| Refusal::not_found("controller", &name))?;
        Ok(LatencyReport::from(&found.counted))
    };
    blocking(desk, report).await.map(Json)
}
