//! `/v1/media/{name}/timing`: the current timing parameters of a medium.

use api::refusal::Kind;
use api::{MediumStatus, ParameterStatus, Refusal, TimingStatus};
use axum::Json;
use axum::extract::{Path, State};
use model::parameter::Value;
use model::preset::MeasuredBy;
use utoipa_axum::routes;

use super::item::Item;
use super::{Routes, Shared, blocking};
use crate::control::Refused;
use crate::supervisor::Supervisor;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(show_timing))
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
            "medium `{}` has no timing model: its commands complete as soon as they are done",
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
            group: parameter.group.to_owned(),
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
