//! The server's side of the control socket.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path as UrlPath, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{delete, get, patch, post, put},
};
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;

use super::{
    Attachment, Inventory, MAX_BODY_LEN, MediumChange, NewPartition, NewPlacement, NewSize,
    PartitionEnd, PartitionPlace, PartitionSize, Refusal, TenantChange,
};
use crate::{config, supervisor::Supervisor};

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, Json(self)).into_response()
    }
}

/// Runs one request on a thread that may block: making a controller waits for its reactor.
async fn blocking<T: Send + 'static>(
    supervisor: Arc<Supervisor>,
    work: impl FnOnce(&Supervisor) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(move || work(&supervisor))
        .await
        .unwrap_or_else(|error| Err(Refusal::failed(&error.into())))
}

fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    config::from_json(bytes).map_err(Refusal::invalid)
}

type Shared = State<Arc<Supervisor>>;

async fn inventory(State(supervisor): Shared) -> Result<Json<Inventory>, Refusal> {
    blocking(supervisor, Supervisor::inventory).await.map(Json)
}

async fn create_medium(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let medium = body(&bytes)?;
    blocking(supervisor, move |s| s.create_medium(medium)).await?;
    Ok(StatusCode::CREATED)
}

async fn create_namespace(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let namespace = body(&bytes)?;
    blocking(supervisor, move |s| s.create_namespace(namespace)).await?;
    Ok(StatusCode::CREATED)
}

async fn create_controller(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let controller = body(&bytes)?;
    blocking(supervisor, move |s| s.create_controller(controller)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_medium(
    State(supervisor): Shared,
    UrlPath(name): UrlPath<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_medium(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_namespace(
    State(supervisor): Shared,
    UrlPath(name): UrlPath<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_namespace(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_controller(
    State(supervisor): Shared,
    UrlPath(name): UrlPath<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_controller(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn attach(
    State(supervisor): Shared,
    UrlPath(controller): UrlPath<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let Attachment { namespace } = body(&bytes)?;
    blocking(supervisor, move |s| s.attach(&namespace, &controller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn detach(
    State(supervisor): Shared,
    UrlPath((controller, namespace)): UrlPath<(String, String)>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.detach(&namespace, &controller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resize(
    State(supervisor): Shared,
    UrlPath(namespace): UrlPath<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let NewSize { size, shrink } = body(&bytes)?;
    blocking(supervisor, move |s| s.resize(&namespace, size, shrink)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change_medium(
    State(supervisor): Shared,
    UrlPath(medium): UrlPath<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let change: MediumChange = body(&bytes)?;
    blocking(supervisor, move |s| s.change_medium(&medium, &change)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn create_partition(
    State(supervisor): Shared,
    UrlPath(medium): UrlPath<String>,
    bytes: Bytes,
) -> Result<(StatusCode, Json<PartitionPlace>), Refusal> {
    let NewPartition { name, size, at } = body(&bytes)?;
    let made = blocking(supervisor, move |s| {
        s.create_partition(&medium, &name, size, at)
    });
    let range = made.await?;
    Ok((StatusCode::CREATED, Json(PartitionPlace { range })))
}

async fn grow_partition(
    State(supervisor): Shared,
    UrlPath((medium, name)): UrlPath<(String, String)>,
    bytes: Bytes,
) -> Result<Json<PartitionPlace>, Refusal> {
    let PartitionSize { size } = body(&bytes)?;
    let range = blocking(supervisor, move |s| s.grow_partition(&medium, &name, size)).await?;
    Ok(Json(PartitionPlace { range }))
}

async fn delete_partition(
    State(supervisor): Shared,
    UrlPath((medium, name)): UrlPath<(String, String)>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let PartitionEnd { erase } = match bytes.is_empty() {
        true => PartitionEnd::default(),
        false => body(&bytes)?,
    };
    blocking(supervisor, move |s| {
        s.delete_partition(&medium, &name, erase)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn create_tenant(State(supervisor): Shared, bytes: Bytes) -> Result<StatusCode, Refusal> {
    let tenant = body(&bytes)?;
    blocking(supervisor, move |s| s.create_tenant(tenant)).await?;
    Ok(StatusCode::CREATED)
}

async fn delete_tenant(
    State(supervisor): Shared,
    UrlPath(name): UrlPath<String>,
) -> Result<StatusCode, Refusal> {
    blocking(supervisor, move |s| s.delete_tenant(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change_tenant(
    State(supervisor): Shared,
    UrlPath(tenant): UrlPath<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let TenantChange { changes } = body(&bytes)?;
    let changes: Vec<_> = changes.into_iter().collect();
    blocking(supervisor, move |s| s.change_tenant(&tenant, &changes)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn move_queues(
    State(supervisor): Shared,
    UrlPath(controller): UrlPath<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let NewPlacement { reactors, queue } = body(&bytes)?;
    blocking(supervisor, move |s| {
        s.move_queues(&controller, &reactors, queue)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Any other path.
async fn unknown() -> Refusal {
    Refusal {
        status: 404,
        title: "not found".into(),
        detail: "there are /v1, /v1/media, /v1/namespaces, /v1/controllers and /v1/tenants".into(),
    }
}

fn router(supervisor: Arc<Supervisor>) -> Router {
    let parts = get(inventory);
    Router::new()
        .route("/v1", parts)
        .route("/v1/media", post(create_medium))
        .route("/v1/namespaces", post(create_namespace))
        .route("/v1/controllers", post(create_controller))
        .route(
            "/v1/media/{name}",
            delete(delete_medium).patch(change_medium),
        )
        .route("/v1/media/{name}/partitions", post(create_partition))
        .route(
            "/v1/media/{name}/partitions/{partition}",
            patch(grow_partition).delete(delete_partition),
        )
        .route(
            "/v1/namespaces/{name}",
            delete(delete_namespace).patch(resize),
        )
        .route("/v1/tenants", post(create_tenant))
        .route(
            "/v1/tenants/{name}",
            delete(delete_tenant).patch(change_tenant),
        )
        .route("/v1/controllers/{name}", delete(delete_controller))
        .route("/v1/controllers/{name}/namespaces", post(attach))
        .route(
            "/v1/controllers/{name}/namespaces/{namespace}",
            delete(detach),
        )
        .route("/v1/controllers/{name}/placement", put(move_queues))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(MAX_BODY_LEN))
        .with_state(supervisor)
}

/// A bound control socket; its path is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Binds `path` with mode 0600.
    ///
    /// # Errors
    /// `AddrInUse` where another process listens there; what the system says otherwise.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // the socket is made under another name, closed to others, and then moved: it is never open to anyone else
        let made = path.with_extension(format!("new.{}", std::process::id()));
        let listener = {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
            let listener = std::os::unix::net::UnixListener::bind(&made)?;
            std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&made, path)?;
            listener
        };
        listener.set_nonblocking(true)?;
        Ok(Socket {
            listener,
            path: path.to_owned(),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // nothing can be done about a socket that somebody else removed
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves until `stop` is done.
pub(crate) async fn serve(
    socket: Socket,
    supervisor: Arc<Supervisor>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.listener.try_clone()?)?;
    axum::serve(listener, router(supervisor))
        .with_graceful_shutdown(stop)
        .await
}
