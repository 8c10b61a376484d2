//! `?detach_hosts=true`: whether a request may take controllers and namespaces from hosts.

use api::Refusal;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use serde::Deserialize;
use utoipa::IntoParams;

/// Treatment of attached hosts
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Consent {
    /// Allow hosts to lose the controllers and namespaces that the request takes from them. Without
    /// it the request fails with 409 while a host is attached, and `errors` lists the hosts.
    #[serde(default)]
    #[param(default = false)]
    pub(super) detach_hosts: bool,
}

/// The query as extracted.
pub(super) type Given = Result<Query<Consent>, QueryRejection>;

/// Whether hosts may lose controllers and namespaces.
pub(super) fn of(given: Given) -> Result<bool, Refusal> {
    let Query(consent) =
        given.map_err(|error| Refusal::invalid(format!("{error}: write ?detach_hosts=true")))?;
    Ok(consent.detach_hosts)
}
