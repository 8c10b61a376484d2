//! The process of a server: what starts in which order, what ends it, and what is printed.

mod ctrl_c;
mod held;

use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use api::config::{Config, Listen};
use api::{ControllerStatus, ReloadRequest};
use holder::Holder;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::oneshot;

use self::ctrl_c::CtrlC;
use crate::control::dashboard_address;
use crate::control::server::{Server, Socket, Tcp};
use crate::interrupt::{SignalRequest, Signals};
use crate::saved::Saved;
use crate::service::{self, Watchdog};
use crate::supervisor::{Source, Supervisor};

/// Configuration and control of a server process.
pub struct Serving {
    /// The configuration, which passes [`Config::validate`], with the changes of `saved`.
    pub config: Config,
    /// Where changes made at run time are saved; `None`: they are lost at the end.
    pub saved: Option<Saved>,
    /// The configuration file, which can be reloaded.
    pub source: Option<Source>,
    /// The control socket, where none is configured.
    pub default_socket: PathBuf,
    /// Whether the end of standard input ends the server.
    pub stop_at_eof: bool,
    /// The process that has the sockets, and replaces this one when it dies.
    pub holder: Option<Arc<Holder>>,
}

/// Stops a server that runs in this process, and reports what was not made durable.
pub type Stop = Box<dyn FnOnce() -> anyhow::Result<()>>;

/// Serves a configuration until stopped; calls `ready` with its controllers when hosts can attach.
///
/// # Errors
/// The server cannot start, or not stop cleanly.
pub fn run(
    serving: Serving,
    ready: impl FnOnce(&[ControllerStatus]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(serving, ready));
    // a request that hangs does not keep the process alive
    runtime.shutdown_background();
    served
}

/// Allows as many descriptors as the system does: each queue of a host over NVMe/TCP, and each NBD
/// client, is one.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that fails, hosts find the limit sooner.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Binds the control socket, or takes the one that a service manager made. Failure is an error only
/// for a socket that was requested explicitly, not for the default one.
fn control_socket(asked_for: Option<&Listen>, default: &Path) -> anyhow::Result<Option<Socket>> {
    if let Some((listener, path)) = service::inherited_socket()? {
        ensure!(
            asked_for.is_none_or(|asked_for| asked_for.path() == Some(path.as_path())),
            "the service manager created the control socket {}, and the configuration or --control names another: remove that, or change `ListenStream=` in the socket unit",
            path.display()
        );
        return Ok(Some(Socket::inherited(listener, path)?));
    }
    if let Some(listen) = asked_for {
        // a configuration with another scheme there is refused
        let Some(path) = listen.path() else {
            return Ok(None);
        };
        return match Socket::bind(path) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error).with_context(|| {
                format!("the control socket {listen} is in use by another server: stop it, or name another socket with --control")
            }),
            Err(error) => {
                // A folder that is misspelt is not created.
                let folder = path.parent().filter(|folder| !folder.exists());
                let remedy = folder.map(|folder| format!(": create the folder {}, or name another socket with --control", folder.display()));
                Err(error).with_context(|| format!("cannot listen on the control socket {listen}{}", remedy.unwrap_or_default()))
            }
        };
    }
    let folder = default.parent().map_or(Ok(()), std::fs::create_dir_all);
    match folder.and_then(|()| Socket::bind(default)) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "another server uses it".to_owned(),
                _ => error.to_string(),
            };
            tracing::warn!(
                "no control socket at {}: {why}; name one with --control unix:PATH to use `nvmirage ls`, `create` and `delete`",
                default.display()
            );
            Ok(None)
        }
    }
}

async fn serve(
    serving: Serving,
    ready: impl FnOnce(&[ControllerStatus]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Serving {
        config,
        saved,
        source,
        default_socket,
        stop_at_eof,
        holder,
    } = serving;
    // first of all, so that a signal also stops cleanly while media are being opened
    let mut signals = Signals::new().context("cannot handle signals")?;
    let control = config.control.clone().unwrap_or_default();
    let socket = control_socket(control.socket.as_ref(), &default_socket)?;
    let tcp = Tcp::of(&control)?;
    let steerable = socket.is_some() || tcp.is_some();
    let has_file = source.is_some();
    let supervisor = Supervisor::start(config, saved, source, holder.clone())?;
    let supervisor = Arc::new(supervisor);
    let is_continuing = holder.as_ref().is_some_and(|it| it.generation() > 1);
    // Where such a process fails to start, another one tries, with the same hosts: it closes
    // none of them, but ends.
    let until_it_serves = is_continuing.then(|| ManuallyDrop::new(supervisor.clone()));
    supervisor
        .watch_protection()
        .context("cannot start a thread")?;
    let server = if steerable {
        let server = Server::start(socket, tcp, supervisor.clone());
        Some(server.context("cannot start a thread")?)
    } else {
        None
    };
    let inventory = supervisor.inventory();
    let inventory = inventory.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    if let Some(holder) = &holder {
        held::begin(&supervisor, holder)?;
        service::tell_through(holder);
    }
    if !is_continuing {
        announce(&inventory.controllers, steerable)?;
    }
    ready(&inventory.controllers)?;
    until_it_serves.map(ManuallyDrop::into_inner);
    if steerable {
        tracing::info!("{}", dashboard_address(&control));
    }
    let watchdog = Watchdog::start(supervisor.pulses()).context("cannot start a thread")?;
    service::ready(&format!(
        "serving {} controllers",
        inventory.controllers.len()
    ));

    let mut input = stop_at_eof.then(end_of_input).transpose()?;
    let mut ctrl_c = CtrlC::default();
    let why = loop {
        tokio::select! {
            asked = signals.of_server() => match asked {
                SignalRequest::End(signal) => break signal,
                SignalRequest::Interrupt => if ctrl_c.ends(&supervisor).await {
                    break "SIGINT";
                },
                // without a file there is nothing to reload: the signal means that the terminal is
                // gone
                SignalRequest::Reload if !has_file => break "SIGHUP",
                SignalRequest::Reload => reload(&supervisor, &mut signals).await,
            },
            () = supervisor.asked_to_stop() => break "the control socket",
            () = ended(&mut input) => break "the end of standard input",
        }
    };
    tracing::info!("stopping: {why}");
    service::stopping();
    drop(watchdog);
    if let Some(server) = server
        && let Err(error) = server.stop().await
    {
        tracing::error!("the control socket failed: {error}");
    }
    let stopped = stop_supervisor(supervisor, &mut signals).await;
    if let Some(holder) = holder
        && let Err(error) = holder.bye()
    {
        tracing::error!("{error}");
    }
    stopped
}

/// Reads the configuration again on a thread that may block. The result is logged.
async fn reload(supervisor: &Arc<Supervisor>, signals: &mut Signals) {
    service::reloading();
    let work = supervisor.clone();
    let mut reloading = tokio::task::spawn_blocking(move || work.reload(ReloadRequest::default()));
    let reloaded = loop {
        tokio::select! {
            reloaded = &mut reloading => break reloaded,
            asked = signals.of_server() => match asked {
                // handled after the reload, so that no change is left half-way
                asked @ (SignalRequest::End(_) | SignalRequest::Interrupt) => {
                    let signal = if let SignalRequest::End(signal) = asked { signal } else { "SIGINT" };
                    tracing::warn!("{signal}: the server stops when the reload is finished");
                    supervisor.ask_to_stop();
                }
                SignalRequest::Reload => tracing::warn!("SIGHUP: a reload is already in progress"),
            },
        }
    };
    let said = match reloaded {
        Ok(Ok(reload)) if reload.is_whole() => "the configuration is applied",
        Ok(Ok(_)) => "the configuration is only partly applied: see the log",
        Ok(Err(refusal)) => {
            tracing::error!("the reloaded configuration is not applied: {refusal}");
            "the previous configuration stays in use: see the log"
        }
        Err(error) => {
            tracing::error!("cannot reload the configuration: {error}");
            "the configuration could not be read again"
        }
    };
    service::ready(said);
}

/// Prints to standard output where hosts can attach.
fn announce(controllers: &[ControllerStatus], steerable: bool) -> anyhow::Result<()> {
    if controllers.is_empty() {
        anyhow::ensure!(
            steerable,
            "nothing to serve: the configuration has no controller, and there is no control socket to create one"
        );
        return terminal::print("ready: no controllers yet; create them with `nvmirage create`\n");
    }
    let mut lines = String::new();
    for controller in controllers {
        let config = &controller.config;
        let namespaces = match config.namespaces.as_slice() {
            [] => "no namespaces".to_owned(),
            names => format!("namespaces {}", names.join(", ")),
        };
        let disk = controller.disk.as_ref();
        let disk = disk.map_or(String::new(), |disk| format!(", block device {disk}"));
        lines += &format!(
            "ready: {} controller {}, {namespaces}{disk}\n",
            config.listen, config.name
        );
    }
    terminal::print(&lines)
}

/// Starts a thread that reads standard input to its end.
fn end_of_input() -> io::Result<oneshot::Receiver<()>> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("standard input".into())
        .spawn(move || {
            let mut buffer = [0; 4096];
            let mut input = io::stdin().lock();
            while matches!(input.read(&mut buffer), Ok(len) if len > 0) {}
            // the program may be stopping already
            let _ = sender.send(());
        })?;
    Ok(receiver)
}

/// Waits for the end of standard input; forever if that was not requested.
async fn ended(input: &mut Option<oneshot::Receiver<()>>) {
    match input {
        Some(receiver) => {
            let _ = receiver.await;
        }
        None => std::future::pending().await,
    }
}

/// Stops the server on a thread that may block; handles signals meanwhile.
async fn stop_supervisor(supervisor: Arc<Supervisor>, signals: &mut Signals) -> anyhow::Result<()> {
    let mut stopping = tokio::task::spawn_blocking(move || supervisor.stop());
    loop {
        tokio::select! {
            stopped = &mut stopping => return stopped.context("stopping failed")?,
            signal = signals.recv() => tracing::warn!(
                "{signal}: stopping already; commands in flight get up to 4 s, then media are made durable"
            ),
        }
    }
}

/// Serves a configuration in this process, for commands that measure a drive of their own.
///
/// # Errors
/// It cannot be served.
pub fn in_process(config: Config) -> anyhow::Result<Stop> {
    let supervisor = Supervisor::start(config, None, None, None)?;
    Ok(Box::new(move || supervisor.stop()))
}
