//! `/v1/controllers`: controllers, their namespaces, and the placement of their queues.

use std::time::Duration;

use api::config::{self, Span};
use api::{
    Attachment, ControllerChange, ControllerStatus, LatencyReport, NewPlacement, QueuesReport,
    Refusal,
};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use machine::clock::Clock;
use serde::Deserialize;
use utoipa_axum::routes;

use super::consent::{self, Consent};
use super::item::{self, Done, Item, Shown};
use super::{Routes, Shared, blocking, body};
use crate::control::Refused;
use crate::observe::{latency_report, queues_report};
use crate::supervisor::{Supervisor, absent};

pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(routes!(list_controllers, create_controller))
        .routes(routes!(
            show_controller,
            put_controller,
            change_controller,
            delete_controller
        ))
        .routes(routes!(attach))
        .routes(routes!(put_attachment, detach))
        .routes(routes!(move_queues))
        .routes(routes!(latency))
        .routes(routes!(queues))
}

/// List controllers
#[utoipa::path(get, path = "/v1/controllers", tag = "controllers", responses((status = 200, body = Vec<ControllerStatus>)))]
async fn list_controllers(State(desk): Shared) -> Result<Json<Vec<ControllerStatus>>, Refused> {
    item::list(desk).await
}

/// Create a controller
#[utoipa::path(post, path = "/v1/controllers", tag = "controllers", request_body = config::Controller, responses((status = 201, body = ControllerStatus)))]
async fn create_controller(
    State(desk): Shared,
    bytes: Bytes,
) -> Result<Shown<ControllerStatus>, Refused> {
    item::create(desk, bytes).await
}

/// Get a controller
#[utoipa::path(get, path = "/v1/controllers/{name}", tag = "controllers", responses((status = 200, body = ControllerStatus)))]
async fn show_controller(
    State(desk): Shared,
    Path(name): Path<String>,
) -> Result<Shown<ControllerStatus>, Refused> {
    item::show(desk, name).await
}

/// Create a controller, or confirm that it exists unchanged
#[utoipa::path(put, path = "/v1/controllers/{name}", tag = "controllers", request_body = config::Controller,
    responses((status = 200, description = "unchanged", body = ControllerStatus), (status = 201, description = "created", body = ControllerStatus)))]
async fn put_controller(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<ControllerStatus>, Refused> {
    item::put(desk, name, headers, bytes).await
}

/// Change keys of a controller
#[utoipa::path(patch, path = "/v1/controllers/{name}", tag = "controllers", request_body = ControllerChange, responses((status = 204)))]
async fn change_controller(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let change: ControllerChange = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.change_controller(name, &change);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Delete a controller; an attached host loses the drive only with `detach_hosts`
#[utoipa::path(delete, path = "/v1/controllers/{name}", tag = "controllers", params(Consent), responses((status = 204)))]
async fn delete_controller(
    State(desk): Shared,
    Path(name): Path<String>,
    given: consent::Given,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    let consent = consent::of(given)?;
    let work = move |s: &Supervisor, name: &str| s.delete_controller(name, consent);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Attach a namespace to a controller
#[utoipa::path(post, path = "/v1/controllers/{name}/namespaces", tag = "controllers", request_body = Attachment, responses((status = 204)))]
async fn attach(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let Attachment { namespace } = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.attach(&namespace, name);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Attach a namespace to a controller, or confirm that it is attached
#[utoipa::path(put, path = "/v1/controllers/{name}/namespaces/{namespace}", tag = "controllers", responses((status = 204)))]
async fn put_attachment(
    State(desk): Shared,
    Path((name, namespace)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    let work = move |s: &Supervisor, name: &str| {
        let controller = ControllerStatus::named(s, name)?;
        if controller.config.namespaces.contains(&namespace) {
            Ok(())
        } else {
            s.attach(&namespace, name)
        }
    };
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Detach a namespace from a controller, and from an attached host only with `detach_hosts`
#[utoipa::path(delete, path = "/v1/controllers/{name}/namespaces/{namespace}", tag = "controllers", params(Consent), responses((status = 204)))]
async fn detach(
    State(desk): Shared,
    Path((name, namespace)): Path<(String, String)>,
    given: consent::Given,
    headers: HeaderMap,
) -> Result<Done, Refused> {
    let consent = consent::of(given)?;
    let work = move |s: &Supervisor, name: &str| s.detach(&namespace, name, consent);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Move queues of a controller to other reactors
#[utoipa::path(put, path = "/v1/controllers/{name}/placement", tag = "controllers", request_body = NewPlacement, responses((status = 204)))]
async fn move_queues(
    State(desk): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Done, Refused> {
    let NewPlacement { reactors, queue } = body(&bytes)?;
    let work = move |s: &Supervisor, name: &str| s.move_queues(name, &reactors, queue);
    item::change::<ControllerStatus>(desk, name, headers, work).await
}

/// Query of the latencies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Timed {
    cntlid: Option<u16>,
}

/// Command latencies of a controller, by stage; of hosts over NVMe/TCP, NBD, vhost-user-blk or ublk
/// their sums
#[utoipa::path(get, path = "/v1/controllers/{name}/latency", tag = "controllers",
    params(("cntlid" = Option<u16>, Query, description = "Controller identifier of a host over NVMe/TCP, NBD, vhost-user-blk or ublk: only its commands since it connected")),
    responses((status = 200, body = LatencyReport)))]
async fn latency(
    State(desk): Shared,
    Path(name): Path<String>,
    timed: Result<Query<Timed>, QueryRejection>,
) -> Result<Json<LatencyReport>, Refused> {
    let timed = timed.map_err(|error| Refusal::invalid(format!("{error}: write ?cntlid=256")))?;
    let Query(Timed { cntlid }) = timed;
    let report = move |s: &Supervisor| {
        let snapshot = s.snapshot()?;
        let mut controllers = snapshot.controllers.iter();
        let found = controllers.find(|one| one.status.config.name == name);
        let found = found.ok_or_else(|| Refusal::not_found("controller", &name))?;
        let Some(cntlid) = cntlid else {
            return Ok(latency_report(&found.counted));
        };
        let host = found.counted.of_host(cntlid);
        let host = host.ok_or_else(|| absent(&name, &format!("the identifier {cntlid:#x}")))?;
        Ok(latency_report(&host))
    };
    blocking(desk, report).await.map(Json)
}

/// Maximum, and default, number of commands shown per submission queue.
const COMMANDS_MAX: usize = 1024;
const COMMANDS: usize = 64;
/// Default age from which a command counts as stuck.
const STUCK_AFTER: Span = Span(Duration::from_secs(1));

/// Query of the queues.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {
    commands: Option<usize>,
    stuck_after: Option<Span>,
    cntlid: Option<u16>,
}

/// Queues of a controller with the commands in flight
#[utoipa::path(get, path = "/v1/controllers/{name}/queues", tag = "controllers",
    params(("commands" = Option<usize>, Query, description = "Number of commands to show per submission queue, oldest first: up to 1024, and up to 2048 per completion queue, and up to 4096 of all hosts over NVMe/TCP together. Default: 64"),
        ("stuck_after" = Option<String>, Query, description = "Age from which a command counts as stuck, as in 500ms or 2s. Default: 1s"),
        ("cntlid" = Option<u16>, Query, description = "Controller identifier of a host over NVMe/TCP, NBD, vhost-user-blk or ublk: only its queues. Default: those of up to 16 hosts")),
    responses((status = 200, body = QueuesReport)))]
async fn queues(
    State(desk): Shared,
    Path(name): Path<String>,
    look: Result<Query<Look>, QueryRejection>,
) -> Result<Json<QueuesReport>, Refused> {
    let look = look
        .map_err(|error| Refusal::invalid(format!("{error}: write ?commands=64&stuck_after=1s")))?;
    let Query(Look {
        commands,
        stuck_after,
        cntlid,
    }) = look;
    let commands = commands.unwrap_or(COMMANDS);
    if commands > COMMANDS_MAX {
        let detail = format!("commands={commands} exceeds the maximum of {COMMANDS_MAX} per queue");
        return Err(Refusal::invalid(detail).into());
    }
    let stuck_after = stuck_after.unwrap_or(STUCK_AFTER).0;
    let stuck_after = u64::try_from(stuck_after.as_nanos()).unwrap_or(u64::MAX);
    let report = move |s: &Supervisor| {
        let found = s.inspect(&name, commands, cntlid)?;
        let now = Clock::of_process().now();
        Ok(queues_report(&found, now.0, stuck_after))
    };
    blocking(desk, report).await.map(Json)
}
