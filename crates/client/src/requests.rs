//! Requests to the server behind a control socket.

use std::future::Future;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use api::config::{Config, Size, Span};
use api::refusal::Document;
use api::{
    AssociationStatus, Attachment, ControllerChange, Disconnection, Event, HostStatus, Inventory,
    LatencyReport, MediumChange, NewPartition, NewPlacement, NewSize, PartitionEnd, PartitionPlace,
    PartitionSize, ProcessStatus, QueuesReport, Reload, ReloadRequest, Stats, Stopping,
    TenantChange, TraceStatus, UpgradeRequest, Upgrading,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use serde::Serialize;
use terminal::progress;

use crate::connection::{Connection, Interrupted, Sender};
use crate::{Address, words};

/// Largest reply that is accepted, in bytes: counters of many controllers, or commands in many
/// queues.
const MAX_REPLY_LEN: usize = 64 << 20;
/// Largest event that is accepted, in bytes.
const MAX_EVENT_LEN: usize = 1 << 20;

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
pub fn inventory(socket: &Address) -> anyhow::Result<Inventory> {
    let body = request(socket, Method::GET, "/v1", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The same, within a shorter time.
pub fn inventory_within(bound: Duration, socket: &Address) -> anyhow::Result<Inventory> {
    let body = request_within(bound, socket, Method::GET, "/v1", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The hosts of all controllers.
pub fn hosts(socket: &Address) -> anyhow::Result<Vec<HostStatus>> {
    let body = request(socket, Method::GET, "/v1/hosts", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Disconnects hosts of a controller over NVMe/TCP or NBD; returns those that were there.
pub fn disconnect(
    socket: &Address,
    controller: &str,
    wanted: &Disconnection,
) -> anyhow::Result<Vec<AssociationStatus>> {
    let path = format!("/v1/hosts/{}/disconnect", checked(controller)?);
    let body = serde_json::to_vec(wanted)?;
    let reply = request(socket, Method::POST, &path, Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// The running configuration.
pub fn configuration(socket: &Address) -> anyhow::Result<Config> {
    let body = request(socket, Method::GET, "/v1/configuration", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The command latencies of a controller, or of its host with this controller
/// identifier.
pub fn latency(
    socket: &Address,
    controller: &str,
    cntlid: Option<u16>,
) -> anyhow::Result<LatencyReport> {
    let mut path = format!("/v1/controllers/{}/latency", checked(controller)?);
    if let Some(cntlid) = cntlid {
        path += &format!("?cntlid={cntlid}");
    }
    let body = request(socket, Method::GET, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// The queues of a controller, with at most `commands` commands of each submission queue.
pub fn queues(
    socket: &Address,
    controller: &str,
    commands: usize,
    stuck_after: Span,
    cntlid: Option<u16>,
) -> anyhow::Result<QueuesReport> {
    let controller = checked(controller)?;
    let mut path = format!(
        "/v1/controllers/{controller}/queues?commands={commands}&stuck_after={stuck_after}"
    );
    if let Some(cntlid) = cntlid {
        path += &format!("&cntlid={cntlid}");
    }
    let body = request(socket, Method::GET, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// All counters.
pub fn stats(socket: &Address) -> anyhow::Result<Stats> {
    let body = request(socket, Method::GET, "/v1/stats", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Has the server reload its configuration.
pub fn reload(socket: &Address, request: ReloadRequest) -> anyhow::Result<Reload> {
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

/// The server's process.
pub fn process(socket: &Address) -> anyhow::Result<ProcessStatus> {
    let body = request(socket, Method::GET, "/v1/process", None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Has another program take the place of the server's, which is about to do so when this returns.
pub fn upgrade(socket: &Address, program: &Path) -> anyhow::Result<Upgrading> {
    let program = program.to_str().context("the program's path is no UTF-8")?;
    let body = serde_json::to_vec(&UpgradeRequest {
        program: program.to_owned(),
    })?;
    let reply = request(socket, Method::POST, "/v1/upgrade", Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Asks the server to stop. The caller then waits for the process in the reply to exit.
pub fn stop(socket: &Address, detach_hosts: bool) -> anyhow::Result<Stopping> {
    let path = with_consent("/v1/stop", detach_hosts);
    let body = request(socket, Method::POST, &path, None)?;
    serde_json::from_slice(&body).context(NOT_UNDERSTOOD)
}

/// Starts a trace and returns its status.
pub fn create_trace(socket: &Address, trace: &impl Serialize) -> anyhow::Result<TraceStatus> {
    let body = serde_json::to_vec(trace)?;
    let reply = request(socket, Method::POST, "/v1/traces", Some(body))?;
    serde_json::from_slice(&reply).context(NOT_UNDERSTOOD)
}

/// Creates an object of a `kind`: `media`, `namespaces`, `tenants` or `controllers`.
pub fn create(socket: &Address, kind: &str, object: &impl Serialize) -> anyhow::Result<()> {
    let body = serde_json::to_vec(object)?;
    let created = request(socket, Method::POST, &format!("/v1/{kind}"), Some(body));
    created.map(drop).map_err(words::of_error)
}

/// Creates an object of a `kind`, or confirms that it exists unchanged. Returns whether it was
/// created.
pub fn put(
    socket: &Address,
    kind: &str,
    name: &str,
    object: &impl Serialize,
) -> anyhow::Result<bool> {
    let path = format!("/v1/{kind}/{}", checked(name)?);
    let body = serde_json::to_vec(object)?;
    let put = answer_within(REQUEST_TIMEOUT, socket, Method::PUT, &path, Some(body));
    let (status, _) = put.map_err(words::of_error)?;
    Ok(status == StatusCode::CREATED)
}

/// Deletes an object of a `kind`: `media`, `namespaces`, `tenants` or `traces`.
pub fn delete(socket: &Address, kind: &str, name: &str) -> anyhow::Result<()> {
    let name = checked(name)?;
    request(socket, Method::DELETE, &format!("/v1/{kind}/{name}"), None).map(drop)
}

/// Deletes a controller.
pub fn delete_controller(socket: &Address, name: &str, detach_hosts: bool) -> anyhow::Result<()> {
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
pub fn attach(socket: &Address, namespace: &str, controller: &str) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}/namespaces", checked(controller)?);
    let body = serde_json::to_vec(&Attachment {
        namespace: checked(namespace)?.to_owned(),
    })?;
    request(socket, Method::POST, &path, Some(body)).map(drop)
}

/// Detaches a namespace from a controller.
pub fn detach(
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
pub fn resize(socket: &Address, namespace: &str, size: Size, shrink: bool) -> anyhow::Result<()> {
    let path = format!("/v1/namespaces/{}", checked(namespace)?);
    let body = serde_json::to_vec(&NewSize { size, shrink })?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes timing parameters of a medium.
pub fn change_medium(socket: &Address, medium: &str, change: &MediumChange) -> anyhow::Result<()> {
    let path = format!("/v1/media/{}", checked(medium)?);
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Creates a partition and returns its location.
pub fn create_partition(
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
pub fn grow_partition(
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
pub fn delete_partition(
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
pub fn change_tenant(socket: &Address, tenant: &str, change: &TenantChange) -> anyhow::Result<()> {
    let path = format!("/v1/tenants/{}", checked(tenant)?);
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes a controller.
pub fn change_controller(
    socket: &Address,
    controller: &str,
    change: &ControllerChange,
) -> anyhow::Result<()> {
    let path = format!("/v1/controllers/{}", checked(controller)?);
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, &path, Some(body)).map(drop)
}

/// Changes the log filter and format.
pub fn change_log(socket: &Address, change: &impl Serialize) -> anyhow::Result<()> {
    let body = serde_json::to_vec(change)?;
    request(socket, Method::PATCH, "/v1/log", Some(body)).map(drop)
}

/// Moves queues of a controller to other reactors.
pub fn move_queues(
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
pub fn events(
    socket: &Address,
    since: Option<u64>,
    mut each: impl FnMut(Event) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let path = match since {
        Some(since) => format!("/v1/events?since={since}"),
        None => "/v1/events".to_owned(),
    };
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let asked = ask(socket, deadline, Method::GET, &path, None);
    let (response, mut server) = asked.map_err(|error| {
        if error.is::<Late>() {
            no_reply(socket, REQUEST_TIMEOUT, false)
        } else {
            error
        }
    })?;
    let mut body = response.into_body();
    let mut text = Vec::new();
    loop {
        // the server sends something every 15 s, at least a comment
        let frame = match server.until(Instant::now() + 2 * REQUEST_TIMEOUT, body.frame())? {
            Ok(Some(frame)) => frame.context("the server has stopped")?,
            Ok(None) | Err(Interrupted::Closed) => {
                bail!("the server has stopped: its log says why")
            }
            Err(Interrupted::Late) => {
                bail!(
                    "no data from {socket} for one minute: the server may be stopped or busy; see its log"
                )
            }
        };
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
        anyhow::ensure!(text.len() < MAX_EVENT_LEN, NOT_UNDERSTOOD);
    }
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
    let deadline = Instant::now() + bound;
    let late = || no_reply(socket, bound, changes);
    let (response, mut server) = ask(socket, deadline, method, path, body)
        .map_err(|error| if error.is::<Late>() { late() } else { error })?;
    let status = response.status();
    let bytes = whole(&mut server, socket, deadline, response)
        .map_err(|error| if error.is::<Late>() { late() } else { error })?;
    Ok((status, bytes))
}

fn no_reply(socket: &Address, bound: Duration, changes: bool) -> anyhow::Error {
    let (shown, bound) = (socket, bound.as_secs());
    if changes {
        return anyhow!(
            "no reply from {shown} within {bound} s: the request may still be carried out; check with `nvmirage ls`, and the server's log"
        );
    }
    anyhow!(
        "no reply from {shown} within {bound} s: the server may be stopped or busy; see its log, and whether `ps` shows it as stopped (T)"
    )
}

/// A deadline has passed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no reply in time")]
struct Late;

/// A connection with its requests; it is closed when this is dropped.
struct Server {
    sender: Sender,
    connection: Connection,
}

impl Server {
    fn until<T>(
        &mut self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> std::io::Result<Result<T, Interrupted>> {
        self.connection.poll_until(deadline, work)
    }
}

/// Sends a request. The response has a success status.
///
/// # Errors
/// [`Late`]; there is no server; it rejects the request.
fn ask(
    socket: &Address,
    deadline: Instant,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> anyhow::Result<(Response<Incoming>, Server)> {
    let opened = Connection::open(socket.path(), deadline);
    let (sender, connection) = opened.map_err(|error| {
        let what = match error.kind() {
            ErrorKind::TimedOut => return anyhow::Error::new(Late),
            ErrorKind::PermissionDenied => format!(
                "{socket}: permission denied; only the server's own user and root may connect: use sudo, or run as that user"
            ),
            _ => socket.nobody(),
        };
        anyhow::Error::new(error).context(what)
    })?;
    let mut server = Server { sender, connection };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "nvmirage")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let sent = server.sender.send_request(request);
    let response = match server.connection.poll_until(deadline, sent)? {
        Ok(response) => response.context("the server closed the connection")?,
        Err(Interrupted::Closed) => bail!("the server closed the connection: its log says why"),
        Err(Interrupted::Late) => return Err(Late.into()),
    };
    let status = response.status();
    if status.is_success() {
        return Ok((response, server));
    }
    let bytes = whole(&mut server, socket, deadline, response)?;
    match serde_json::from_slice::<Document>(&bytes) {
        Ok(document) => bail!(words::of_parameters(&document.detail)),
        Err(_) => bail!(
            "the server rejected the request with status {status} without a reason; check that server and client have the same version"
        ),
    }
}

/// Reads a whole reply.
///
/// # Errors
/// [`Late`]; the reply ends early, or is too long.
fn whole(
    server: &mut Server,
    socket: &Address,
    deadline: Instant,
    response: Response<Incoming>,
) -> anyhow::Result<Bytes> {
    let body = Limited::new(response.into_body(), MAX_REPLY_LEN);
    let incomplete =
        |why: &dyn std::fmt::Display| anyhow!("the reply from {socket} is incomplete: {why}");
    match server.until(deadline, body.collect())? {
        Ok(whole) => Ok(whole.map_err(|error| incomplete(&error))?.to_bytes()),
        Err(Interrupted::Closed) => Err(incomplete(&"the server closed the connection")),
        Err(Interrupted::Late) => Err(Late.into()),
    }
}
