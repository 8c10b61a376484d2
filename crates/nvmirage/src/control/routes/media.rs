//! `/v1/media`: where bytes live, with their timing and zones.

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{delete, post},
};

use super::{Routes, Shared, blocking, body};
use crate::control::{MediumChange, Refusal};

pub(super) fn routes() -> Routes {
    Routes::new().route("/v1/media", post(create_medium)).route(
        "/v1/media/{name}",
        delete(delete_medium).patch(change_medium),
    )
}

async fn create_medium(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let medium = body(&bytes)?;
    blocking(supervisor, move |s| s.create_medium(medium)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_medium(
    State(supervisor): Shared,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_medium(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change_medium(
    State(supervisor): Shared,
    Path(medium): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let change: MediumChange = body(&bytes)?;
    blocking(supervisor, move |s| s.change_medium(&medium, &change)).await?;
    Ok(StatusCode::NO_CONTENT)
}
