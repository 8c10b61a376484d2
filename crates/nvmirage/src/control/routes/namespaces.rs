//! `/v1/namespaces`: parts of media, as hosts see them.

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{delete, post},
};

use super::{Routes, Shared, blocking, body};
use crate::control::{NewSize, Refusal};

pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/v1/namespaces", post(create_namespace))
        .route(
            "/v1/namespaces/{name}",
            delete(delete_namespace).patch(resize),
        )
}

async fn create_namespace(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let namespace = body(&bytes)?;
    blocking(supervisor, move |s| s.create_namespace(namespace)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_namespace(
    State(supervisor): Shared,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_namespace(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resize(
    State(supervisor): Shared,
    Path(namespace): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let NewSize { size, shrink } = body(&bytes)?;
    blocking(supervisor, move |s| s.resize(&namespace, size, shrink)).await?;
    Ok(StatusCode::NO_CONTENT)
}
