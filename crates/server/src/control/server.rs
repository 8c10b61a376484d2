//! The server of the control API: the control socket, and TCP where configured.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::config::Control;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::routes::{Desk, remember, router};
use super::stalling::Stalling;
use super::token::Token;
use super::{guard, limits};
use crate::supervisor::Supervisor;

/// A bound control socket. Dropping it removes its path, unless a service manager created it.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    inherited: bool,
}

impl Socket {
    /// Binds `path`, in a folder that exists, with mode 0600.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; otherwise the system's.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        // created under another name with restricted permissions, then renamed: at no time can
        // others open it
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

    /// A socket that a service manager created at `path`, with the mode in its unit. It stays when
    /// the server ends.
    ///
    /// # Errors
    /// The system's.
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
        // a socket that was already removed needs no more
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A bound TCP address, and its token.
#[derive(Debug)]
pub(crate) struct Tcp {
    listener: std::net::TcpListener,
    token: Token,
}

impl Tcp {
    /// Binds the configured address, if there is one.
    ///
    /// # Errors
    /// The token cannot be read or created, or the address is unavailable.
    pub(crate) fn of(control: &Control) -> anyhow::Result<Option<Self>> {
        let (Some(address), Some(file)) = (control.tcp, &control.token_file) else {
            return Ok(None);
        };
        let token = Token::of_file(file)?;
        let listener = std::net::TcpListener::bind(address)
            .with_context(|| format!("cannot listen on [control] tcp = \"{address}\""))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let file = file.display();
        tracing::info!("control at http://{address}, with the token in {file}");
        Ok(Some(Tcp { listener, token }))
    }
}

/// The thread that answers requests. It has a higher nice value than the threads that serve hosts,
/// and so do the threads it starts. Changes therefore run on the main program's runtime: they may
/// start threads that serve hosts.
#[derive(Debug)]
pub(crate) struct Server {
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Server {
    /// Starts the thread. Changes run on the caller's runtime.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(
        socket: Option<Socket>,
        tcp: Option<Tcp>,
        supervisor: Arc<Supervisor>,
    ) -> io::Result<Self> {
        let desk = Desk::new(supervisor, tokio::runtime::Handle::current());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::LOOKS)
            .thread_name("control")
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                // for this thread only (setpriority(2), NOTES); without permission its priority
                // stays unchanged
                let _ = rustix::process::setpriority_process(None, limits::NICE);
                let served = runtime.block_on(serve(socket, tcp, desk, stopped));
                // a request that hangs must not keep the process alive
                runtime.shutdown_background();
                let _ = end.send(served);
            })?;
        Ok(Server { stop, ended })
    }

    /// Stops accepting requests, and gives those in progress some time to finish.
    pub(crate) async fn stop(self) -> io::Result<()> {
        self.stop.send_replace(true);
        let ended = self.ended.await;
        ended.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    }
}

async fn serve(
    socket: Option<Socket>,
    tcp: Option<Tcp>,
    desk: Desk,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    tokio::spawn(remember(desk.clone()));
    let answers = guard::with_whole_bodies(router(desk));
    let (open, mut all_closed) = mpsc::channel(1);
    let gate = |router: Router| Gate {
        router,
        room: Arc::new(Semaphore::new(limits::CONNECTIONS)),
        stop: stop.clone(),
        open: open.clone(),
    };
    if let Some(socket) = &socket {
        let listener = UnixListener::from_std(socket.listener.try_clone()?)?;
        let (gate, strangers) = (gate(answers.clone()), gate(guard::to_strangers()));
        tokio::spawn(async move {
            while let Some((stream, place)) = gate.accept(|| listener.accept()).await {
                let may = stream
                    .peer_cred()
                    .is_ok_and(|peer| guard::may_steer(peer.uid()));
                let gate = if may { &gate } else { &strangers };
                tokio::spawn(gate.clone().answer(stream, place));
            }
        });
    }
    if let Some(Tcp { listener, token }) = tcp {
        let listener = TcpListener::from_std(listener)?;
        let gate = gate(guard::with_token(answers, token));
        tokio::spawn(gate.answer_all(listener));
    }
    drop(open);
    // an error means that the sender is gone, which also means to stop
    let _ = stop.wait_for(|stop| *stop).await;
    // connections that remain are closed with the runtime
    let _ = timeout(limits::STOP, all_closed.recv()).await;
    Ok(())
}

/// Answers requests over TCP until `stop` becomes true; open connections then have some time to
/// finish.
pub(super) async fn answer_over_tcp(
    listener: TcpListener,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let (open, mut all_closed) = mpsc::channel(1);
    let gate = Gate {
        router,
        room: Arc::new(Semaphore::new(limits::CONNECTIONS)),
        stop,
        open,
    };
    gate.answer_all(listener).await;
    let _ = timeout(limits::STOP, all_closed.recv()).await;
}

/// A router with the limits of its connections.
#[derive(Clone)]
struct Gate {
    router: Router,
    /// Permits for connections.
    room: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    /// Held by every open connection.
    open: mpsc::Sender<()>,
}

impl Gate {
    /// Answers every connection until the server stops.
    async fn answer_all(self, listener: TcpListener) {
        while let Some((stream, place)) = self.accept(|| listener.accept()).await {
            tokio::spawn(self.clone().answer(stream, place));
        }
    }

    /// The next connection, once there is a permit for it; `None` when the server stops.
    async fn accept<S, A, F>(&self, accept: impl Fn() -> F) -> Option<(S, OwnedSemaphorePermit)>
    where
        F: Future<Output = io::Result<(S, A)>>,
    {
        let mut stop = self.stop.clone();
        let next = async {
            let place = self.room.clone().acquire_owned().await.ok()?;
            loop {
                match accept().await {
                    Ok((stream, _)) => return Some((stream, place)),
                    Err(error) => {
                        tracing::debug!("no connection to control: {error}");
                        sleep(limits::PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            next = next => next,
            _ = stop.wait_for(|stop| *stop) => None,
        }
    }

    /// Answers the requests of one connection.
    async fn answer<S>(mut self, stream: S, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(Stalling::new(stream, limits::STALL));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD)
            .max_headers(limits::HEADERS)
            .max_buf_size(limits::HEAD_LEN)
            .serve_connection(stream, TowerToHyperService::new(self.router));
        let mut connection = std::pin::pin!(connection);
        let stops = async {
            let _ = self.stop.wait_for(|stop| *stop).await;
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = stops => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a connection to control ended: {error}");
        }
        drop((place, self.open));
    }
}
