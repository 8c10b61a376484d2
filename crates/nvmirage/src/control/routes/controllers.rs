//! `/v1/controllers`: what hosts attach to, the namespaces they have and where their queues live.

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{delete, post, put},
};

use super::{Routes, Shared, blocking, body};
use crate::control::{Attachment, NewPlacement, Refusal};

pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/v1/controllers", post(create_controller))
        .route("/v1/controllers/{name}", delete(delete_controller))
        .route("/v1/controllers/{name}/namespaces", post(attach))
        .route(
            "/v1/controllers/{name}/namespaces/{namespace}",
            delete(detach),
        )
        .route("/v1/controllers/{name}/placement", put(move_queues))
}

async fn create_controller(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let controller = body(&bytes)?;
    blocking(supervisor, move |s| s.create_controller(controller)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_controller(
    State(supervisor): Shared,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_controller(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn attach(
    State(supervisor): Shared,
    Path(controller): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let Attachment { namespace } = body(&bytes)?;
    blocking(supervisor, move |s| s.attach(&namespace, &controller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn detach(
    State(supervisor): Shared,
    Path((controller, namespace)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.detach(&namespace, &controller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn move_queues(
    State(supervisor): Shared,
    Path(controller): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let NewPlacement { reactors, queue } = body(&bytes)?;
    blocking(supervisor, move |s| {
        s.move_queues(&controller, &reactors, queue)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
