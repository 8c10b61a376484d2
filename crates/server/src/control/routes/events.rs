//! `/v1/events`: the stream of events (server-sent events, HTML Standard 9.2).
//!
//! A reader resumes by naming its last event: `Last-Event-ID`, or `since`. A reader so slow that
//! events were discarded gets their number (`lost`), and its stream ends. It then reads the current
//! state and starts again.

use std::convert::Infallible;

use api::{Event, Refusal};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa_axum::routes;

use super::{Routes, Shared};
use crate::control::Refused;
use crate::events;

/// Events that a reader fetches at once.
const BATCH: usize = 64;

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(read_events))
}

/// Start of the stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    since: Option<u64>,
}

/// Stream of events: server-sent events, each a JSON object
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(("since" = Option<u64>, Query, description = "Number of the last known event; the stream starts with the next one. Default: only new events")),
    responses((status = 200, body = Event, content_type = "text/event-stream")))]
async fn read_events(
    State(desk): Shared,
    from: Result<Query<From>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let Query(from) =
        from.map_err(|error| Refusal::invalid(format!("{error}: write ?since=ID")))?;
    let header = headers.get("last-event-id");
    let header = header.and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let place = desk.readers.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        let detail = "the maximum number of event streams is open: close one, or retry later";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, "too many readers", detail)
    })?;
    let bell = events::all().bell();
    let since = header.or(from.since).unwrap_or(*bell.borrow());
    let reader = Reader {
        since,
        ready: Vec::new().into_iter(),
        bell,
        cut: false,
        _place: place,
    };
    let stream = futures_util::stream::unfold(reader, Reader::next);
    Ok(Sse::new(stream)
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// One reader.
struct Reader {
    /// Number of the last event sent.
    since: u64,
    ready: std::vec::IntoIter<Event>,
    bell: watch::Receiver<u64>,
    cut: bool,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The next event, once there is one; `None` after the stream was cut. Called only when the
    /// connection can take more.
    async fn next(mut self) -> Option<(Result<Sent, Infallible>, Self)> {
        if self.cut {
            return None;
        }
        loop {
            if let Some(event) = self.ready.next() {
                self.since = event.id;
                let sent = Sent::default()
                    .id(event.id.to_string())
                    .event(event.event.name());
                // numbers and text have a JSON form
                let sent = sent.json_data(&event).unwrap_or_default();
                return Some((Ok(sent), self));
            }
            let (lost, ready) = events::all().since(self.since, BATCH);
            if lost > 0 {
                self.cut = true;
                let sent = Sent::default()
                    .event("lost")
                    .data(format!("{{\"lost\":{lost}}}"));
                return Some((Ok(sent), self));
            }
            if ready.is_empty() {
                let since = self.since;
                self.bell.wait_for(|last| *last > since).await.ok()?;
            }
            self.ready = ready.into_iter();
        }
    }
}
