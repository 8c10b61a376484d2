//! Objects by name: how objects of any kind are shown, created, confirmed and changed.
//!
//! An object's tag (`ETag`) is a digest of its configuration, so counters do not change it. A
//! request with `If-Match` is carried out only if the object still has that tag. The check and the
//! change are one turn ([`Supervisor::steer`]), so no other request changes anything in between.

use api::{
    ControllerStatus, HostStatus, MediumStatus, NamespaceStatus, PartitionStatus, ReactorStatus,
    Refusal, TenantStatus, TraceStatus,
};
use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Desk, blocking, body, changing};
use crate::control::Refused;
use crate::supervisor::Supervisor;

/// Bytes of the digest in a tag.
const TAG_LEN: usize = 12;

/// An object with a path of its own under `/v1`.
pub(super) trait Item: Serialize + Send + Sized + 'static {
    /// Kind, for error messages.
    const KIND: &'static str;
    /// All objects of the kind.
    fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal>;
    /// Whether it has that name.
    fn is(&self, name: &str) -> bool;
    /// Its configuration.
    fn config(&self) -> Value;

    /// The object of that name.
    fn named(supervisor: &Supervisor, name: &str) -> Result<Self, Refusal> {
        let mut all = Self::all(supervisor)?.into_iter();
        let found = all.find(|item| item.is(name));
        found.ok_or_else(|| Refusal::not_found(Self::KIND, name))
    }

    /// Its tag.
    fn tag(&self) -> String {
        let digest = Sha256::digest(self.config().to_string());
        let digits = digest.iter().take(TAG_LEN);
        format!(
            "\"{}\"",
            digits.map(|b| format!("{b:02x}")).collect::<String>()
        )
    }
}

/// An item whose configuration an operator can send.
pub(super) trait Configured: Item {
    /// Its configuration.
    type Config: Serialize + DeserializeOwned + Send + 'static;
    /// The last configuration that the operator gave it.
    fn said(supervisor: &Supervisor, name: &str) -> Option<Self::Config>;
    /// Creates it.
    fn create(supervisor: &Supervisor, config: Self::Config) -> Result<(), Refusal>;
    /// Its name in the configuration.
    fn name_of(config: &Self::Config) -> &str;
}

fn json(config: &impl Serialize) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}

/// Precondition of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    /// `If-Match`: the object has one of these tags.
    matches: Option<String>,
    /// `If-None-Match: *`: the object does not exist.
    absent: bool,
}

impl Condition {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let text = |name: header::HeaderName| {
            let value = headers.get(&name).map(HeaderValue::to_str).transpose();
            value.map_err(|_| Refusal::invalid(format!("the header {name} is not text")))
        };
        let absent = match text(header::IF_NONE_MATCH)? {
            None => false,
            Some("*") => true,
            Some(other) => {
                return Err(Refusal::invalid(format!(
                    "If-None-Match: {other}: write `*`, for an object that does not exist"
                )));
            }
        };
        Ok(Condition {
            matches: text(header::IF_MATCH)?.map(str::to_owned),
            absent,
        })
    }

    /// Checks an object against the precondition (RFC 9110, 13.1).
    pub(super) fn check<T: Item>(&self, item: Option<&T>, name: &str) -> Result<(), Refusal> {
        let kind = T::KIND;
        if self.absent && item.is_some() {
            return Err(Refusal::precondition_failed(format!(
                "{kind} `{name}` already exists; a request without `If-None-Match: *` confirms it if it is unchanged"
            )));
        }
        let Some(tags) = &self.matches else {
            return Ok(());
        };
        let Some(item) = item else {
            return Err(Refusal::precondition_failed(format!(
                "{kind} `{name}` no longer exists; a request without `If-Match` creates it again"
            )));
        };
        let tag = item.tag();
        let mut tags = tags.split(',').map(str::trim);
        if tags.any(|one| one == "*" || one == tag) {
            return Ok(());
        }
        Err(Refusal::precondition_failed(format!(
            "{kind} `{name}` has changed since it was read: its tag is now {tag}. Read it again, and repeat the request with this tag if it still applies"
        )))
    }
}

/// An object with its tag.
pub(super) struct Shown<T>(StatusCode, T);

impl<T: Item> IntoResponse for Shown<T> {
    fn into_response(self) -> Response {
        let tag = [(header::ETAG, self.1.tag())];
        (self.0, tag, Json(self.1)).into_response()
    }
}

/// Success without a body, with the object's new tag, if it still exists.
pub(super) struct Done(Option<String>);

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        match self.0 {
            Some(tag) => (StatusCode::NO_CONTENT, [(header::ETAG, tag)]).into_response(),
            None => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

/// All objects of a kind.
pub(super) async fn list<T: Item>(desk: Desk) -> Result<Json<Vec<T>>, Refused> {
    blocking(desk, T::all).await.map(Json)
}

/// The object of that name.
pub(super) async fn show<T: Item>(desk: Desk, name: String) -> Result<Shown<T>, Refused> {
    let item = blocking(desk, move |s| T::named(s, &name)).await?;
    Ok(Shown(StatusCode::OK, item))
}

/// Creates an object.
pub(super) async fn create<T: Configured>(desk: Desk, bytes: Bytes) -> Result<Shown<T>, Refused> {
    let config: T::Config = body(&bytes)?;
    let made = changing(desk, move |s| {
        let _turn = s.steer();
        let name = T::name_of(&config).to_owned();
        T::create(s, config)?;
        T::named(s, &name)
    });
    Ok(Shown(StatusCode::CREATED, made.await?))
}

/// Creates an object, or confirms that it exists unchanged.
pub(super) async fn put<T: Configured>(
    desk: Desk,
    name: String,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Shown<T>, Refused> {
    let condition = Condition::of(&headers)?;
    let config: T::Config = named_body(&bytes, &name)?;
    if T::name_of(&config) != name {
        let detail = format!("name: the path says `{name}`: write the same, or remove it");
        return Err(Refusal::invalid_at("/name".into(), detail).into());
    }
    let put = changing(desk, move |s| {
        let _turn = s.steer();
        let present = T::all(s)?.into_iter().find(|item| item.is(&name));
        condition.check(present.as_ref(), &name)?;
        let Some(present) = present else {
            T::create(s, config)?;
            return Ok((StatusCode::CREATED, T::named(s, &name)?));
        };
        let wanted = json(&config);
        let said = T::said(s, &name).map(|said| json(&said));
        if said.as_ref() == Some(&wanted) || present.config() == wanted {
            return Ok((StatusCode::OK, present));
        }
        let differs = differences(said.as_ref().unwrap_or(&Value::Null), &wanted);
        Err(Refusal::conflict(format!(
            "{} `{name}` exists and differs: {differs}. Change it with PATCH where possible, or delete and recreate it",
            T::KIND
        )))
    });
    put.await.map(|(status, item)| Shown(status, item))
}

/// Changes an object, if the precondition holds.
pub(super) async fn change<T: Item>(
    desk: Desk,
    name: String,
    headers: HeaderMap,
    work: impl FnOnce(&Supervisor, &str) -> Result<(), Refusal> + Send + 'static,
) -> Result<Done, Refused> {
    let condition = Condition::of(&headers)?;
    let changed = changing(desk, move |s| {
        let _turn = s.steer();
        let item = T::named(s, &name)?;
        condition.check(Some(&item), &name)?;
        work(s, &name)?;
        let all = T::all(s)?;
        Ok(all.iter().find(|item| item.is(&name)).map(T::tag))
    });
    changed.await.map(Done)
}

/// Parses a body in which `name` may be omitted, because the path has it.
fn named_body<T: DeserializeOwned>(bytes: &Bytes, name: &str) -> Result<T, Refusal> {
    let mut value: Value = body(bytes)?;
    if let Value::Object(keys) = &mut value {
        keys.entry("name").or_insert_with(|| name.into());
    }
    body(&Bytes::from(value.to_string()))
}

/// The keys that differ, with their current and requested values.
fn differences(there: &Value, wanted: &Value) -> String {
    let empty = serde_json::Map::new();
    let (there, wanted) = (
        there.as_object().unwrap_or(&empty),
        wanted.as_object().unwrap_or(&empty),
    );
    let keys = there.keys().chain(wanted.keys());
    let mut keys: Vec<_> = keys
        .filter(|key| there.get(*key) != wanted.get(*key))
        .collect();
    keys.sort();
    keys.dedup();
    let shown = |value: Option<&Value>| value.map_or("left out".to_owned(), Value::to_string);
    let lines = keys.into_iter().map(|key| {
        let (there, wanted) = (shown(there.get(key)), shown(wanted.get(key)));
        format!("`{key}` is {there}, not {wanted}")
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Implements `Item` and `Configured` for kinds that an operator configures. Each line: status,
/// configuration, kind, list function, configuration field, create function.
macro_rules! configured {
    ($($status:ty, $config:ty, $kind:literal, $all:expr, $in:ident, $create:ident;)+) => {$(
        impl Item for $status {
            const KIND: &'static str = $kind;
            fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal> {
                $all(supervisor)
            }
            fn is(&self, name: &str) -> bool {
                self.config.name == name
            }
            fn config(&self) -> Value {
                json(&self.config)
            }
        }

        impl Configured for $status {
            type Config = $config;
            fn said(supervisor: &Supervisor, name: &str) -> Option<Self::Config> {
                supervisor.config_of(|config| config.$in.iter().find(|one| one.name == name).cloned())
            }
            fn create(supervisor: &Supervisor, config: Self::Config) -> Result<(), Refusal> {
                supervisor.$create(config)
            }
            fn name_of(config: &Self::Config) -> &str {
                &config.name
            }
        }
    )+};
}

configured! {
    MediumStatus, api::config::Medium, "media", |s: &Supervisor| Ok(s.media()), media, create_medium;
    NamespaceStatus, api::config::Namespace, "namespace", Supervisor::namespaces, namespace, create_namespace;
    TenantStatus, api::config::tenant::Tenant, "tenant", |s: &Supervisor| Ok(s.tenants()), tenant, create_tenant;
    ControllerStatus, api::config::Controller, "controller", Supervisor::controllers, controller, create_controller;
}

impl Item for TraceStatus {
    const KIND: &'static str = "trace";
    fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal> {
        Ok(supervisor.traces())
    }
    fn is(&self, name: &str) -> bool {
        self.config.name == name
    }
    fn config(&self) -> Value {
        json(&self.config)
    }
}

impl Configured for TraceStatus {
    type Config = api::config::trace::Trace;
    fn said(supervisor: &Supervisor, name: &str) -> Option<Self::Config> {
        supervisor.trace_config(name)
    }
    fn create(supervisor: &Supervisor, config: Self::Config) -> Result<(), Refusal> {
        supervisor.create_trace(config)
    }
    fn name_of(config: &Self::Config) -> &str {
        &config.name
    }
}

impl Item for ReactorStatus {
    const KIND: &'static str = "reactor";
    fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal> {
        Ok(supervisor.reactors())
    }
    fn is(&self, name: &str) -> bool {
        self.reactor.to_string() == name
    }
    fn config(&self) -> Value {
        json(&self.config)
    }
}

/// Named after its controller.
impl Item for HostStatus {
    const KIND: &'static str = "host at controller";
    fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal> {
        supervisor.hosts()
    }
    fn is(&self, name: &str) -> bool {
        self.controller == name
    }
    /// Without ages: the object is the same while its hosts are.
    fn config(&self) -> Value {
        let mut same = self.clone();
        let hosts = same.hosts.iter_mut();
        hosts.for_each(|host| host.connected_ms = 0);
        json(&same)
    }
}

/// Named `MEDIUM/PARTITION`.
impl Item for PartitionStatus {
    const KIND: &'static str = "partition";
    fn all(supervisor: &Supervisor) -> Result<Vec<Self>, Refusal> {
        Ok(supervisor.partitions())
    }
    fn is(&self, name: &str) -> bool {
        name.split_once('/') == Some((&self.media, &self.partition.name))
    }
    fn config(&self) -> Value {
        json(self)
    }
}
