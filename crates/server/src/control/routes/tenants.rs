//! `/v1/tenants`: tenants, which share media by weights and limits.

use api::{TenantChange, TenantStatus, config};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use utoipa_axum::routes;

use super::item::{self, Done, Shown};
use super::{Routes, Shared, body};
use crate::control::Refused;
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_tenants, create_tenant))
        .routes(routes!(
            show_tenant,
            put_tenant,
            change_tenant,
            delete_tenant
        ))
}

/// List tenants
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", responses((status = 200, body = Vec<TenantStatus>)))]
async fn list_tenants(State(desk): Shared) -> Result<Json<Vec<TenantStatus>>, Refused> {
    item::list(desk).await
}

/// Create a tenant
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = config::tenant::Tenant, responses((status = 201, body = TenantStatus)))]
async fn create_tenant(State(desk): Shared, bytes: Bytes) -> Result<Shown<TenantStatus>, Refused> {
    item::create(desk, bytes).await
}

/// Get a tenant
#[utoipa::path(get, path = "/v1/tenants/{name}", tag = "tenants", responses((status = 200, body = TenantStatus)))]
async fn show_tenant(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<TenantStatus>, Refused> {
    item::show(desk, name).await
}

/// Create a tenant, or confirm that it exists unchanged
#[utoipa::path(put, path = "/v1/tenants/{name}", tag = "tenants", request_body = config::tenant::Tenant,
    responses((status = 200, description = "unchanged", body = TenantStatus), (status = 201, description = "created", body = TenantStatus)))]
async fn put_tenant(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<TenantStatus>, Refused> {
    item::put(desk, name, headers, bytes).await
}

/// Change keys of a tenant
#[utoipa::path(patch, path = "/v1/tenants/{name}", tag = "tenants", request_body = TenantChange, responses((status = 204)))]
async fn change_tenant(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let change: TenantChange = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.change_tenant(name, &change);
    item::change::<TenantStatus>(desk, name, headers, work).await
}

/// Delete an unused tenant
#[utoipa::path(delete, path = "/v1/tenants/{name}", tag = "tenants", responses((status = 204)))]
async fn delete_tenant(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    item::change::<TenantStatus>(desk, name, headers, |s, name| s.delete_tenant(name)).await
}
