//! `/v1/media/NAME/partitions`: named partitions of drives and files. `/v1/partitions` lists those
//! of all media.

use api::{NewPartition, PartitionEnd, PartitionPlace, PartitionSize, PartitionStatus};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use utoipa_axum::routes;

use super::item::{self, Condition, Item, Shown};
use super::{Routes, Shared, body, changing};
use crate::control::Refused;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_partitions))
        .routes(routes!(create_partition))
        .routes(routes!(show_partition, grow_partition, delete_partition))
}

/// List the partitions of all media
#[utoipa::path(get, path = "/v1/partitions", tag = "partitions", responses((status = 200, body = Vec<PartitionStatus>)))]
async fn list_partitions(State(desk): Shared) -> Result<Json<Vec<PartitionStatus>>, Refused> {
    item::list(desk).await
}

/// Create a partition
#[utoipa::path(post, path = "/v1/media/{name}/partitions", tag = "partitions", request_body = NewPartition, responses((status = 201, body = PartitionPlace)))]
async fn create_partition(
    State(desk): Shared,
    Path(medium): Path<String>,
    bytes: Bytes,
) -> Result<(StatusCode, Json<PartitionPlace>), Refused> {
    let NewPartition { name, size, at } = body(&bytes)?;
    let made = changing(desk, move |s| {
        let _turn = s.steer();
        s.create_partition(&medium, &name, size, at)
    });
    let range = made.await?;
    Ok((StatusCode::CREATED, Json(PartitionPlace { range })))
}

/// Get a partition of a medium
#[utoipa::path(get, path = "/v1/media/{name}/partitions/{partition}", tag = "partitions", responses((status = 200, body = PartitionStatus)))]
async fn show_partition(
    State(desk): Shared,
    Path((medium, partition)): Path<(String, String)>,
) -> Result<Shown<PartitionStatus>, Refused> {
    item::show(desk, format!("{medium}/{partition}")).await
}

/// Resize a partition
#[utoipa::path(patch, path = "/v1/media/{name}/partitions/{partition}", tag = "partitions", request_body = PartitionSize, responses((status = 200, body = PartitionPlace)))]
async fn grow_partition(
    State(desk): Shared,
    Path((medium, name)): Path<(String, String)>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<PartitionPlace>, Refused> {
    let PartitionSize { size } = body(&bytes)?;
    let condition = Condition::of(&headers)?;
    let grown = changing(desk, move |s| {
        let _turn = s.steer();
        let full_name = format!("{medium}/{name}");
        condition.check(Some(&PartitionStatus::named(s, &full_name)?), &full_name)?;
        s.grow_partition(&medium, &name, size)
    });
    let range = grown.await?;
    Ok(Json(PartitionPlace { range }))
}

/// Delete a partition that no namespace uses; `erase` zeroes its bytes first
#[utoipa::path(delete, path = "/v1/media/{name}/partitions/{partition}", tag = "partitions", request_body = Option<PartitionEnd>, responses((status = 204)))]
async fn delete_partition(
    State(desk): Shared,
    Path((medium, name)): Path<(String, String)>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<StatusCode, Refused> {
    let PartitionEnd { erase } = if bytes.is_empty() {
        PartitionEnd::default()
    } else {
        body(&bytes)?
    };
    let condition = Condition::of(&headers)?;
    changing(desk, move |s| {
        let turn = s.steer();
        let full_name = format!("{medium}/{name}");
        condition.check(Some(&PartitionStatus::named(s, &full_name)?), &full_name)?;
        s.delete_partition(&medium, &name, erase, turn)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
