//! `/v1/media/{name}/timing`: the current timing parameters of a medium.

use axum::Json;
use axum::extract::{Path, State};
use model::parameter::Value;
use model::preset::MeasuredBy;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::item::Item;
use super::{Routes, Shared, blocking};
use crate::control::refusal::Kind;
use crate::control::{MediumStatus, Refusal, Refused};
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(show_timing))
}

/// Timing model of a medium.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TimingStatus {
    /// Preset of the drive.
    preset: String,
    /// Kind of the model: `nvm`, `kv`, `flash` or `zns`.
    kind: String,
    /// Parameters, in the order of the reference.
    parameters: Vec<ParameterStatus>,
}

/// Parameter of a timing model.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ParameterStatus {
    /// Name of the parameter.
    name: String,
    /// Current value, as in a configuration.
    value: String,
    /// Current value as a number: nanoseconds, bytes, bytes per second (0: unlimited), commands per
    /// second (0: unlimited), tenths of a percent, a count, 0 or 1, or an index into `words`.
    raw: u64,
    /// Unit: `time`, `bandwidth`, `rate`, `size`, `count`, `percent`, `flag` or `word`.
    unit: String,
    /// Valid values, in words.
    range: String,
    /// Valid words, for the unit `word`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    words: Vec<String>,
    /// Moment at which a change is possible: `live`, at any time; `reset`, when its controller is
    /// reset; `fixed`, only when the medium is created.
    applies: String,
    /// Effect of the parameter.
    description: String,
}

/// Current timing parameters of a medium
#[utoipa::path(get, path = "/v1/media/{name}/timing", tag = "media", responses((status = 200, body = TimingStatus)))]
async fn show_timing(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Json<TimingStatus>, Refused> {
    let show = move |s: &Supervisor| of_medium(&MediumStatus::named(s, &name)?);
    blocking(desk, show).await.map(Json)
}

fn of_medium(medium: &MediumStatus) -> Result<TimingStatus, Refusal> {
    let Some(timing) = &medium.config.timing else {
        let detail = format!(
            "media `{}` has no timing model: its commands complete as soon as they are done",
            medium.config.name
        );
        return Err(Refusal::new(Kind::NotFound, detail));
    };
    let parameters = timing.parameters(medium.bytes);
    let parameters = parameters.map_err(|problems| Refusal::invalid(problems.join("\n")))?;
    let by = timing.as_measured_by.map(MeasuredBy::from);
    let kind = parameters.kind();
    let rows = kind.parameters().map(|parameter| {
        use model::parameter::Unit;
        // shown as it would be configured: reading a configuration subtracts the host's part of a
        // latency
        let host_ns = by.unwrap_or_default().host_ns(parameter.name).unwrap_or(0);
        let Value { unit, raw } = parameter.get(&parameters);
        let value = Value {
            unit,
            raw: raw.saturating_add(host_ns),
        };
        let (unit, words) = match unit {
            Unit::Flag => ("flag".to_owned(), Vec::new()),
            Unit::Word(words) => (
                "word".to_owned(),
                words.iter().map(|w| (*w).to_owned()).collect(),
            ),
            other => (other.name(), Vec::new()),
        };
        ParameterStatus {
            name: parameter.name.to_owned(),
            value: value.to_string(),
            raw: value.raw,
            unit,
            range: parameter.range(),
            words,
            applies: parameter.change.name().to_owned(),
            description: parameter.about.to_owned(),
        }
    });
    Ok(TimingStatus {
        preset: timing.preset.clone(),
        kind: kind.name().to_owned(),
        parameters: rows.collect(),
    })
}
