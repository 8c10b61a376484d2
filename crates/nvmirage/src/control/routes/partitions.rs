//! `/v1/media/NAME/partitions`: parts of drives and files that have names.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{patch, post},
};

use super::{Routes, Shared, blocking, body};
use crate::control::{NewPartition, PartitionEnd, PartitionPlace, PartitionSize, Refusal};

pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/v1/media/{name}/partitions", post(create_partition))
        .route(
            "/v1/media/{name}/partitions/{partition}",
            patch(grow_partition).delete(delete_partition),
        )
}

async fn create_partition(
    State(supervisor): Shared,
    Path(medium): Path<String>,
    bytes: Bytes,
) -> Result<(StatusCode, Json<PartitionPlace>), Refusal> {
    let NewPartition { name, size, at } = body(&bytes)?;
    let made = blocking(supervisor, move |s| {
        s.create_partition(&medium, &name, size, at)
    });
    let range = made.await?;
    Ok((StatusCode::CREATED, Json(PartitionPlace { range })))
}

async fn grow_partition(
    State(supervisor): Shared,
    Path((medium, name)): Path<(String, String)>,
    bytes: Bytes,
) -> Result<Json<PartitionPlace>, Refusal> {
    let PartitionSize { size } = body(&bytes)?;
    let range = blocking(supervisor, move |s| s.grow_partition(&medium, &name, size)).await?;
    Ok(Json(PartitionPlace { range }))
}

async fn delete_partition(
    State(supervisor): Shared,
    Path((medium, name)): Path<(String, String)>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let PartitionEnd { erase } = match bytes.is_empty() {
        true => PartitionEnd::default(),
        false => body(&bytes)?,
    };
    blocking(supervisor, move |s| {
        s.delete_partition(&medium, &name, erase)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
