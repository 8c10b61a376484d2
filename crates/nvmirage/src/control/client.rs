//! The client of the control socket.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use api::config::log::Log;
use api::config::trace::Trace;
use api::config::{Config, Size, Span};
use api::refusal::Document;
use api::{
    Attachment, ControllerChange, Event, Inventory, LatencyReport, MediumChange, NewPartition,
    NewPlacement, NewSize, PartitionEnd, PartitionPlace, PartitionSize, QueuesReport, Reload,
    ReloadRequest, Stats, Stopping, TenantChange, TraceStatus,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use terminal::progress;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Address, MAX_BODY_LEN, MAX_REPLY_LEN};

/// Longest time for a request: it may wait for a reactor, more than once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for all steps of a configuration reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest time in which the slowest drive erases the largest partition.
const ERASE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Error for a reply that this version would not have sent.
const NOT_UNDERSTOOD: &str =
    "cannot parse the server's reply; check that server and client have the same version";

/// The inventory of the server.
pub(crate) fn inventory(socket: &Address) -> anyhow::Result<Inventory> {
    let body = request(socket, Method::GET, "/v1", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The same, within a shorter time.
pub(crate) fn inventory_within(bound: Duration, socket: &Address) -> anyhow::Result<Inventory> {
    let body = request_within(bound, socket, Method::GET, "/v1", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The running configuration.
pub(crate) fn configuration(socket: &Address) -> anyhow::Result<Config> {
    let body = request(socket, Method::GET, "/v1/configuration", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The command latencies of a controller.
pub(crate) fn latency(socket: &Address, controller: &str) -> anyhow::Result<LatencyReport> {
    let path = format!("/v1/controllers/{}/latency", checked(controller)?);
    let body = request(socket, Method::GET, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The queues of a controller, with at most `commands` commands of each submission queue.
pub(crate) fn queues(
    socket: &Address,
    controller: &str,
    commands: usize,
    stuck_after: Span,
) -> anyhow::Result<QueuesReport> {
    let controller = checked(controller)?;
    let path = format!(
        "/v1/controllers/{controller}/queues?commands={commands}&stuck_after={stuck_after}"
    );
    let body = request(socket, Method::GET, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// All counters.
pub(crate) fn stats(socket: &Address) -> anyhow::Result<Stats> {
    let body = request(socket, Method::GET, "/v1/stats", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Has the server reload its configuration.
pub(crate) fn reload(socket: &Address, request: ReloadRequest) -> anyhow::Result<Reload> {
    let body = serde_json::to_vec(&request)?;
    let reply = request_within(
        RELOAD_TIMEOUT,
        socket,
        Method::POST,
        "/v1/reload",
        Some(body),
    )?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Asks the server to stop. The caller then waits for the process in the reply to exit.
pub(crate) fn stop(socket: &Address, detach_hosts: bool) -> anyhow::Result<Stopping> {
    let path = with_consent("/v1/stop", detach_hosts);
    let body = request(socket, Method::POST, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Starts a trace and returns its status.
pub(crate) fn create_trace(socket: &Address, trace: &Trace) -> anyhow::Result<TraceStatus> {
    let body = serde_json::to_vec(trace)?;
    let reply = request(socket, Method::POST, "/v1/traces", Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Creates an object of a `kind`: `media`, `namespaces`, `tenants` or `controllers`.
pub(crate) fn create(socket: &Address, kind: &str, object: &impl Serialize) -> anyhow::Result<()> {
    let body = serde_json::to_vec(object)?;
    request(socket, Method::POST, &format!("/v1/{kind}"), Some(body)).map(drop)
}

/// Creates an object of a `kind`, or confirms that it exists unchanged. Returns whether it was
/// created.
pub(crate) fn put(
    socket: &Address,
    kind: &str,
    name: &str,
    object: &impl Serialize,
) -> anyhow::Result<bool> {
    let path = format!("/v1/{kind}/{}", checked(name)?);
    let body = serde_json::to_vec(object)?;
    let (status, _) = answer_within(REQUEST_TIMEOUT, socket, Method::PUT, &path, Some(body))?;
    Ok(status == StatusCode::CREATED)
}

/// Deletes an object of a `kind`: `media`, `namespaces`, `tenants` or `traces`.
pub(crate) fn delete(socket: &Address, kind: &str, name: &str) -> anyhow::Result<()> {
    let name = checked(name)?;
    request(socket, Method::DELETE, &format!("/v1/{kind}/{name}"), None).map(drop)
}

/// Deletes a controller.
pub(crate) fn delete_controller(
    socket: &Address,
    name: &str,
    detach_hosts: bool,
) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}", checked(name)?);
    let path = with_consent(&path, detach_hosts);
    request(socket, Method::DELETE, &path, None).map(drop)
}

/// The path of a request that may take a controller or namespace from a host.
fn with_consent(path: &str, detach_hosts: bool) -> String {
    if detach_hosts {
        format!("{path}?detach_hosts=true")
    } else {
        path.to_owned()
    }
}

/// Attaches a namespace to a controller.
pub(crate) fn attach(socket: &Address, namespace: &str, controller: &str) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}/namespaces", checked(controller)?);
    let body = serde_json::to_vec(&Attachment {
        namespace: checked(namespace)?.to_owned(),
    })?;
    request(socket, Method::POST, &path, Some(body)).map(drop)
}

/// Detaches a namespace from a controller.
pub(crate) fn detach(
    socket: &Address,
    namespace: &str,
    controller: &str,
    detach_hosts: bool,
) -> anyhow::Result<()> {
    let (namespace, controller) = (checked(namespace)?, checked(controller)?);
    let path = format!("/v1/controllers/{controller}/namespaces/{namespace}");
    let path = with_consent(&path, detach_hosts);
    request(socket, Method::DELETE, &path, None).map(drop)
}

/// Resizes a namespace.
pub(crate) fn resize(
    socket: &Address,
    namespace: &str,
    size: Size,
    shrink: bool,
) -> anyhow::Result<()> {
    let path = format!("/v1/namespaces/{}", checked(namespace)?);
    let body = serde_json::to_vec(&NewSize { size, shrink })?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes timing parameters of a medium.
pub(crate) fn change_medium(
    socket: &Address,
    medium: &str,
    change: &MediumChange,
) -> anyhow::Result<()> {
    let path = format!("/v1/media/{}", checked(medium)?);
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Creates a partition and returns its location.
pub(crate) fn create_partition(
    socket: &Address,
    medium: &str,
    partition: &NewPartition,
) -> anyhow::Result<PartitionPlace> {
    let path = format!("/v1/media/{}/partitions", checked(medium)?);
    let body = serde_json::to_vec(partition)?;
    let reply = request(socket, Method::POST, &path, Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Resizes a partition and returns its new location.
pub(crate) fn grow_partition(
    socket: &Address,
    medium: &str,
    name: &str,
    size: Size,
) -> anyhow::Result<PartitionPlace> {
    let path = format!(
        "/v1/media/{}/partitions/{}",
        checked(medium)?,
        checked(name)?
    );
    let body = serde_json::to_vec(&PartitionSize { size })?;
    let reply = request(socket, Method::PATCH, &path, Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Deletes a partition. With `erase`, this takes as long as the drive needs.
pub(crate) fn delete_partition(
    socket: &Address,
    medium: &str,
    name: &str,
    erase: bool,
) -> anyhow::Result<()> {
    let path = format!(
        "/v1/media/{}/partitions/{}",
        checked(medium)?,
        checked(name)?
    );
    let body = serde_json::to_vec(&PartitionEnd { erase })?;
    let timeout = if erase {
        ERASE_TIMEOUT
    } else {
        REQUEST_TIMEOUT
    };
    request_within(timeout, socket, Method::DELETE, &path, Some(body)).map(drop)
}

/// Changes a tenant.
pub(crate) fn change_tenant(
    socket: &Address,
    tenant: &str,
    change: &TenantChange,
) -> anyhow::Result<()> {
    let path = format!("/v1/tenants/{}", checked(tenant)?);
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes a controller.
pub(crate) fn change_controller(
    socket: &Address,
    controller: &str,
    change: ControllerChange,
) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}", checked(controller)?);
    let body = serde_json::to_vec(&change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes the log filter and format.
pub(crate) fn change_log(socket: &Address, change: &Log) -> anyhow::Result<()> {
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, "/v1/log", Some(body)).map(drop)
}

/// Moves queues of a controller to other reactors.
pub(crate) fn move_queues(
    socket: &Address,
    controller: &str,
    placement: &NewPlacement,
) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}/placement", checked(controller)?);
    let body = serde_json::to_vec(placement)?;
    request(socket, Method::PUT, &path, Some(body)).map(drop)
}

/// Reads the events after `since`, until `each` returns false.
///
/// # Errors
/// The connection is lost, or the server no longer has all of the events.
pub(crate) fn events(
    socket: &Address,
    since: Option<u64>,
    mut each: impl FnMut(Event) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let path = match since {
        Some(since) => format!("/v1/events?since={since}"),
        None => "/v1/events".to_owned(),
    };
    runtime()?.block_on(async {
        let asked = timeout(REQUEST_TIMEOUT, ask(socket, Method::GET, &path, None)).await;
        let asked = asked.map_err(|_| no_reply(socket, REQUEST_TIMEOUT))?;
        let (response, _driving) = asked?;
        let mut body = response.into_body();
        let mut text = Vec::new();
        // the server sends something every 15 s, at least a comment
        while let Ok(frame) = timeout(2 * REQUEST_TIMEOUT, body.frame()).await {
            let Some(frame) = frame else {
                bail!("the server has stopped: its log says why");
            };
            let frame = frame.context("the server has stopped")?;
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let rest = text.split_off(end + 2);
                let block = String::from_utf8(std::mem::replace(&mut text, rest))?;
                if let Some(event) = event_of(&block)?
                    && !each(event)?
                {
                    return Ok(());
                }
            }
            anyhow::ensure!(text.len() < MAX_BODY_LEN, NOT_UNDERSTOOD);
        }
        bail!("no data from {} for one minute", socket)
    })
}

/// The event in a block of an event stream (HTML Standard, 9.2.6); `None` for a keep-alive.
fn event_of(block: &str) -> anyhow::Result<Option<Event>> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines.find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(':')
                .map(str::trim_start)
        })
    };
    let Some(data) = field("data") else {
        return Ok(None);
    };
    if field("event") == Some("lost") {
        let lost: serde_json::Value = serde_json::from_str(data).context(NOT_UNDERSTOOD)?;
        bail!(
            "{} events are lost: list the current objects with `nvmirage ls`, and start again",
            lost["lost"]
        );
    }
    serde_json::from_str(data).map(Some).context(NOT_UNDERSTOOD)
}

/// Checks a name that becomes part of a URL: an object's name, or `SUBSYSTEM:NSID`.
fn checked(name: &str) -> anyhow::Result<&str> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
    if name.is_empty() || !name.bytes().all(fits) {
        bail!(
            "invalid name `{name}`: write letters, digits, `.`, `_` and `-`; a namespace that a host created is named SUBSYSTEM:NSID"
        );
    }
    Ok(name)
}

fn request(
    socket: &Address,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<Bytes> {
    request_within(REQUEST_TIMEOUT, socket, method, path, body)
}

fn request_within(
    bound: Duration,
    socket: &Address,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<Bytes> {
    answer_within(bound, socket, method, path, body).map(|(_, bytes)| bytes)
}

/// The same, with the reply's status, which is always a success.
fn answer_within(
    bound: Duration,
    socket: &Address,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    // a look-up is quick, and may feed a full-screen view that other output would disturb
    let changes = method != Method::GET;
    let _line = changes.then(|| progress::waiting("the server is processing the request"));
    runtime()?.block_on(async {
        timeout(bound, exchange(socket, method, path, body))
            .await
            .map_err(|_| no_reply(socket, bound))?
    })
}

fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()
}

fn no_reply(socket: &Address, bound: Duration) -> anyhow::Error {
    let (shown, bound) = (socket, bound.as_secs());
    anyhow!(
        "no reply from {shown} within {bound} s: the request may still be carried out; check with `nvmirage ls`, and the server's log"
    )
}

/// Drives the connection of a reply; dropping it closes the connection.
struct Driving {
    _sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<hyper::Result<()>>,
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn exchange(
    socket: &Address,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (response, _driving) = ask(socket, method, path, body).await?;
    let status = response.status();
    Ok((status, whole(response, socket).await?))
}

/// Sends a request. The response has a success status.
async fn ask(
    socket: &Address,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<(Response<Incoming>, Driving)> {
    let shown = socket;
    let stream = tokio::net::UnixStream::connect(socket.path())
        .await
        .map_err(|error| {
            let what = match error.kind() {
                ErrorKind::PermissionDenied => format!(
                    "{shown}: permission denied; only the server's own user and root may connect: use sudo, or run as that user"
                ),
                _ => socket.nobody(),
            };
            anyhow::Error::new(error).context(what)
        })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "nvmirage")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let response = sender.send_request(request).await?;
    let driving = Driving {
        _sender: sender,
        task,
    };
    let status = response.status();
    if status.is_success() {
        return Ok((response, driving));
    }
    let bytes = whole(response, socket).await?;
    match serde_json::from_slice::<Document>(&bytes) {
        Ok(document) => bail!("{}", document.detail),
        Err(_) => bail!(
            "the server rejected the request with status {status} without a reason; check that server and client have the same version"
        ),
    }
}

/// Reads a whole reply.
async fn whole(response: Response<Incoming>, socket: &Address) -> anyhow::Result<Bytes> {
    let body = Limited::new(response.into_body(), MAX_REPLY_LEN);
    let whole = body.collect().await;
    let shown = socket;
    Ok(whole
        .map_err(|error| anyhow!("the reply from {shown} is incomplete: {error}"))?
        .to_bytes())
}
