//! Where requests come in: the listener.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::net::UnixListener;

use super::routes::router;
use crate::supervisor::Supervisor;

/// A bound control socket; its path is removed when it is dropped, unless a service manager made it.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    inherited: bool,
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
            inherited: false,
        })
    }

    /// One that a service manager made at `path`, with the mode that its unit says, and keeps when we end.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn inherited(
        listener: std::os::unix::net::UnixListener,
        path: PathBuf,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Socket {
            listener,
            path,
            inherited: true,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.inherited {
            return;
        }
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
