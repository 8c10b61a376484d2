//! `/v1/tenants`: who shares media with whom.

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{delete, post},
};

use super::{Routes, Shared, blocking, body};
use crate::control::{Refusal, TenantChange};

pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/v1/tenants", post(create_tenant))
        .route(
            "/v1/tenants/{name}",
            delete(delete_tenant).patch(change_tenant),
        )
}

async fn create_tenant(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let tenant = body(&bytes)?;
    blocking(supervisor, move |s| s.create_tenant(tenant)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_tenant(
    State(supervisor): Shared,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_tenant(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change_tenant(
    State(supervisor): Shared,
    Path(tenant): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let TenantChange { changes } = body(&bytes)?;
    let changes: Vec<_> = changes.into_iter().collect();
    blocking(supervisor, move |s| s.change_tenant(&tenant, &changes)).await?;
    Ok(StatusCode::NO_CONTENT)
}
