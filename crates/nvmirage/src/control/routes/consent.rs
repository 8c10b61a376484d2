//! `?detach_hosts=true`: what a request says of hosts that would lose something by it.

use axum::extract::{Query, rejection::QueryRejection};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::control::Refusal;

/// What becomes of hosts that are attached
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Consent {
    /// Hosts may lose what the request takes from them. Without it the answer is 409 where one is attached, and `errors` lists them.
    #[serde(default)]
    #[param(default = false)]
    pub(super) detach_hosts: bool,
}

/// What a request says.
pub(super) type Given = Result<Query<Consent>, QueryRejection>;

/// Whether hosts may lose something.
pub(super) fn of(given: Given) -> Result<bool, Refusal> {
    let Query(consent) =
        given.map_err(|error| Refusal::invalid(format!("{error}: write ?detach_hosts=true")))?;
    Ok(consent.detach_hosts)
}
