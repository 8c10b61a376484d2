//! `nvmirage serve`: serves controllers until stopped.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use api::config::{self, Config, Doorbells, Listen};
use api::{ControllerStatus, ReloadRequest};
use client::Address;
use client::cli::parse;
use lab::cli::fidelity::Stop;
use tokio::sync::oneshot;

use super::UsageError;
use super::ctrl_c::CtrlC;
use super::media_arg::MediaArg;
use crate::control::server::{Server, Socket, Tcp};
use crate::interrupt::{Asked, Signals};
use crate::saved::{self, Saved};
use crate::service::{self, Watchdog};
use crate::supervisor::{Source, Supervisor};
use crate::{control, logging};

const EXAMPLES: &str = "\
Examples:
  nvmirage serve --media ram:size=8GiB --listen vfio-user:/tmp/nvme.sock
      A drive in memory: controller nvme0 with one namespace
  nvmirage serve --media file:path=disk.img,size=64GiB --listen vfio-user:/tmp/nvme.sock
      A drive in a file, created if missing
  nvmirage serve --media ram:size=8GiB --listen fuse:/mnt/drive
      A drive for this machine itself: the file /mnt/drive/ns1
  nvmirage serve --config nvmirage.toml
      Everything in the file; `nvmirage check nvmirage.toml` prints it with all defaults

It prints a line `ready: …` for each controller once hosts can attach. SIGTERM and SIGINT stop
it, and SIGHUP has it read FILE again, as `nvmirage reload`.";

/// Serve controllers until stopped
///
/// With --media and --listen the server has one controller, `nvme0`, with a namespace for each
/// --media. Everything else needs a configuration.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("served").required(true).args(["config", "media"])
)]
pub(super) struct Serve {
    /// Configuration file in TOML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["media", "listen", "doorbells"])]
    config: Option<PathBuf>,

    /// Medium: null, ram, file, drive or keyvalue, with size=, path=, target=, lba_size=, direct=,
    /// poll_submissions=, poll_completions=, register_memory=, read_only=, preset= and timing.NAME=
    #[arg(long, value_name = "KIND[:KEY=VALUE,…]", requires = "listen")]
    media: Vec<MediaArg>,

    /// Address that hosts attach to: a socket, or a folder in which this machine has each namespace
    /// as a file
    #[arg(long, value_name = "vfio-user:PATH|fuse:FOLDER", value_parser = parse::listen, requires = "media")]
    listen: Option<Listen>,

    /// Doorbell delivery: auto is mapped for a polling reactor, else unmapped
    #[arg(long, value_name = "HOW", value_parser = parse::word::<Doorbells>(&["auto", "mapped", "unmapped", "trapped"]))]
    doorbells: Option<Doorbells>,

    /// Control socket, for `nvmirage ls`, `create`, `delete`
    ///
    /// Default: that of the configuration, else NVMIRAGE_CONTROL, else
    /// $XDG_RUNTIME_DIR/nvmirage/control.sock, or /run/nvmirage/control.sock without
    /// XDG_RUNTIME_DIR. If the default socket cannot be created, the server runs without one.
    #[arg(long, value_name = "unix:PATH", value_parser = parse::unix)]
    control: Option<PathBuf>,

    /// Start with only the configuration: the file of changes made over the control socket is
    /// renamed to *.old.json
    #[arg(long, requires = "config")]
    forget: bool,

    /// Stop also at the end of standard input, for a parent process that may be killed
    #[arg(long)]
    stop_at_eof: bool,
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut config = self.read()?;
        let source = self.config.as_ref();
        let source = source.map(|file| Source::new(file, &config)).transpose()?;
        self.override_in(&mut config)?;
        logging::configure(&config.log).map_err(UsageError)?;
        let saved = self.saved(&mut config)?;
        run(config, saved, source, self.stop_at_eof, || Ok(()))
    }

    #[cfg(test)]
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let mut config = self.read()?;
        self.override_in(&mut config)?;
        Ok(config)
    }

    /// The configuration from the file or from the short form.
    fn read(&self) -> anyhow::Result<Config> {
        match (&self.config, &self.listen) {
            (Some(file), _) => config::from_file(file),
            (None, Some(listen)) => self.short_form(listen.clone()),
            (None, None) => {
                Err(UsageError("write --config FILE, or --media and --listen".into()).into())
            }
        }
    }

    /// Values of the command line take precedence over the file.
    fn override_in(&self, config: &mut Config) -> anyhow::Result<()> {
        let in_file = config.control.as_ref().and_then(|it| it.socket.as_ref());
        let control = match self.control.clone() {
            None if in_file.is_none() => Address::of_environment().map_err(UsageError)?,
            named => named,
        };
        if let Some(control) = control {
            let asked_for = &mut config.control.get_or_insert_default().socket;
            *asked_for = Some(Listen::Unix(control));
        }
        let problems = config.validate();
        if !problems.is_empty() {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(UsageError(lines.join("\n")).into());
        }
        Ok(())
    }

    /// Merges objects that were created at run time into the configuration. Nothing is saved for a
    /// drive that the command line defines, nor without a state folder unless one was requested.
    fn saved(&self, config: &mut Config) -> anyhow::Result<Option<Saved>> {
        let Some(file) = &self.config else {
            return Ok(None);
        };
        let place = saved::folder(config.state_dir.as_deref());
        let folder = match place {
            Ok(folder) => folder,
            Err(error) if config.state_dir.is_none() => {
                tracing::warn!("run-time changes are lost at the next start: {error:#}");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (saved, lost) = Saved::take(&folder, file, config, self.forget)?;
        lost.iter().for_each(|line| tracing::warn!("{line}"));
        Ok(Some(saved))
    }

    /// One controller, `nvme0`, with a namespace for each medium.
    fn short_form(&self, listen: Listen) -> anyhow::Result<Config> {
        let told_apart_by = self.media.iter().find_map(|arg| arg.path.as_deref());
        let told_apart_by = std::path::absolute(told_apart_by.unwrap_or(listen.path()))?;
        let mut config = Config {
            short_form: Some(told_apart_by),
            ..Config::default()
        };
        let mut controller = config::Controller::new("nvme0".into(), listen);
        controller.doorbells = self.doorbells.unwrap_or_default();
        for (index, arg) in self.media.iter().enumerate() {
            let medium = match index {
                0 => "disk".to_owned(),
                _ => format!("disk{}", index + 1),
            };
            let namespace = format!("ns{}", index + 1);
            controller.namespaces.push(namespace.clone());
            config.media.push(arg.medium(medium.clone()));
            config.namespace.push(config::Namespace {
                name: namespace,
                media: medium,
                range: None,
                partition: None,
                lba_size: arg.lba_size.unwrap_or(config::DEFAULT_LBA_SIZE),
                nguid: None,
                eui64: None,
                tenant: None,
                weight: None,
            });
        }
        config.controller.push(controller);
        Ok(config)
    }
}

/// Serves a configuration until stopped; calls `ready` when hosts can attach.
pub(super) fn run(
    config: Config,
    saved: Option<Saved>,
    source: Option<Source>,
    stop_at_eof: bool,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(config, saved, source, stop_at_eof, ready));
    // a request that hangs does not keep the process alive
    runtime.shutdown_background();
    served
}

/// Binds the control socket, or takes the one that a service manager made. Failure is an error only
/// for a socket that was requested explicitly, not for the default one.
fn control_socket(asked_for: Option<&Listen>) -> anyhow::Result<Option<Socket>> {
    if let Some((listener, path)) = service::inherited_socket()? {
        ensure!(
            asked_for.is_none_or(|asked_for| asked_for.path() == path),
            "the service manager created the control socket {}, and the configuration or --control names another: remove that, or change `ListenStream=` in the socket unit",
            path.display()
        );
        return Ok(Some(Socket::inherited(listener, path)?));
    }
    if let Some(listen) = asked_for {
        return match Socket::bind(listen.path()) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error).with_context(|| {
                format!("the control socket {listen} is in use by another server: stop it, or name another socket with --control")
            }),
            Err(error) => Err(error).with_context(|| format!("cannot listen on the control socket {listen}")),
        };
    }
    let path = Address::default_of_server();
    match Socket::bind(&path) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "another server uses it".to_owned(),
                _ => error.to_string(),
            };
            tracing::warn!(
                "no control socket at {}: {why}; name one with --control unix:PATH to use `nvmirage ls`, `create` and `delete`",
                path.display()
            );
            Ok(None)
        }
    }
}

async fn serve(
    config: Config,
    saved: Option<Saved>,
    source: Option<Source>,
    stop_at_eof: bool,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // first of all, so that a signal also stops cleanly while media are being opened
    let mut signals = Signals::new().context("cannot handle signals")?;
    let control = config.control.clone().unwrap_or_default();
    let socket = control_socket(control.socket.as_ref())?;
    let tcp = Tcp::of(&control)?;
    let steerable = socket.is_some() || tcp.is_some();
    let has_file = source.is_some();
    let supervisor = Arc::new(Supervisor::start(config, saved, source)?);
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
    announce(&inventory.controllers, steerable)?;
    ready()?;
    if steerable {
        tracing::info!("{}", control::dashboard_address(&control));
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
                Asked::End(signal) => break signal,
                Asked::Interrupt => if ctrl_c.ends(&supervisor).await {
                    break "SIGINT";
                },
                // without a file there is nothing to reload: the signal means that the terminal is
                // gone
                Asked::Reload if !has_file => break "SIGHUP",
                Asked::Reload => reload(&supervisor, &mut signals).await,
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
    stop_supervisor(supervisor, &mut signals).await
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
                asked @ (Asked::End(_) | Asked::Interrupt) => {
                    let signal = if let Asked::End(signal) = asked { signal } else { "SIGINT" };
                    tracing::warn!("{signal}: the server stops when the reload is finished");
                    supervisor.ask_to_stop();
                }
                Asked::Reload => tracing::warn!("SIGHUP: a reload is already in progress"),
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
        lines += &format!(
            "ready: {} controller {}, {namespaces}\n",
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
pub(super) fn in_process(config: Config) -> anyhow::Result<Stop> {
    let supervisor = Supervisor::start(config, None, None)?;
    Ok(Box::new(move || supervisor.stop()))
}
