//! `nvmirage serve`: serves controllers until stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::config::{self, Config, Doorbells, Listen};
use client::Address;
use client::cli::parse;
use holder::{Ended, Holder, HolderError, Program};
use machine::files::read_text;
use server::process::{self, Serving};
use server::saved::{self, Saved};
use server::survival::CONFIGURATION;
use server::{Source, logging};

use super::UsageError;
use super::media_arg::{self, MediaArg};

const EXAMPLES: &str = "\
Examples:
  nvmirage serve --media ram:size=8GiB --listen vfio-user:/tmp/nvme.sock
      A drive in memory: controller nvme0 with one namespace
  nvmirage serve --media file:path=disk.img,size=64GiB --listen vfio-user:/tmp/nvme.sock
      A drive in a file, created if missing
  nvmirage serve --media ram:size=8GiB --listen fuse:/mnt/drive
      A drive for this machine itself: the file /mnt/drive/ns1
  nvmirage serve --media ram:size=8GiB --listen nvme-tcp:127.0.0.1:4420
      A drive over NVMe/TCP, for `nvme connect` on this machine
  nvmirage serve --media ram:size=8GiB --listen nbd:/tmp/nbd.sock
      A drive over NBD, for qemu-img, nbdcopy and nbd-client: export ns1
  nvmirage serve --media ram:size=8GiB --listen vhost-user-blk:/tmp/b.sock
      A virtio disk of a guest
  nvmirage serve --media file:path=disk.img,size=8GiB --listen ublk:
      A block device of this machine, /dev/ublkbN, as root
  nvmirage serve
      Everything in /etc/nvmirage/nvmirage.toml
  nvmirage serve --survive --media ram:size=8GiB --listen vfio-user:/tmp/nvme.sock
      A drive in memory whose host sees only a pause when the server crashes or is upgraded
  nvmirage serve --config nvmirage.toml
      Everything in the file; `nvmirage check nvmirage.toml` prints it with all defaults

It prints a line `ready: …` for each controller once hosts can attach. SIGTERM and SIGINT stop
it, and SIGHUP has it read FILE again, as `nvmirage reload`.";

/// The configuration that the Debian package installs.
const DEFAULT_CONFIG: &str = "/etc/nvmirage/nvmirage.toml";

/// Serve controllers until stopped
///
/// With --media and --listen the server has one controller, `nvme0`, with a namespace for each
/// --media. Everything else needs a configuration.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("served").args(["config", "media"])
)]
pub(super) struct Serve {
    /// Configuration file in TOML
    ///
    /// Default, without --media: /etc/nvmirage/nvmirage.toml
    #[arg(long, value_name = "FILE", conflicts_with_all = ["media", "listen", "doorbells"])]
    config: Option<PathBuf>,

    #[arg(
        long,
        value_name = "KIND[:KEY=VALUE,…]",
        requires = "listen",
        help = media_arg::help(),
        add = media_arg::completer()
    )]
    media: Vec<MediaArg>,

    /// Address that hosts attach to: a socket, a folder in which this machine has each namespace
    /// as a file, a TCP address, an address of NBD clients, the socket of a virtio disk, or a block
    /// device of this machine
    #[arg(long, value_name = "vfio-user:PATH|fuse:FOLDER|nvme-tcp:ADDRESS:PORT|nbd:PATH|nbd:ADDRESS:PORT|vhost-user-blk:PATH|ublk:|ublk:ID", value_parser = parse::listen, requires = "media")]
    listen: Option<Listen>,

    /// Doorbell delivery: auto is mapped for a polling reactor, else unmapped
    #[arg(long, value_name = "HOW", value_parser = parse::word::<Doorbells>())]
    doorbells: Option<Doorbells>,

    /// Control socket, for `nvmirage ls`, `create`, `delete`
    ///
    /// Default: that of the configuration, else NVMIRAGE_CONTROL, else
    /// $XDG_RUNTIME_DIR/nvmirage/control.sock, or /run/nvmirage/control.sock without
    /// XDG_RUNTIME_DIR. If the default socket cannot be created, the server runs without one.
    #[arg(long, value_name = "unix:PATH", value_parser = parse::unix)]
    control: Option<PathBuf>,

    /// Folder of identities and saved state, instead of the configuration's state_dir
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    /// Start with only the configuration: the file of changes made over the control socket is
    /// renamed to *.old.json
    #[arg(long, conflicts_with = "media")]
    forget: bool,

    /// Keep hosts attached when the server's process dies: a small process has the sockets, and
    /// starts another server's process, which continues
    ///
    /// Rejects drives over NVMe/TCP, and media whose timing model is recorded. Timing models
    /// continue with their last checkpoint. See also `nvmirage upgrade`.
    #[arg(long)]
    survive: bool,

    /// Stop also at the end of standard input, for a parent process that may be killed
    #[arg(long)]
    stop_at_eof: bool,
}

/// The configuration to serve where the command line names none.
fn default_config(path: &Path) -> Result<PathBuf, UsageError> {
    if path.exists() {
        return Ok(path.to_owned());
    }
    let path = path.display();
    Err(UsageError(format!(
        "nothing to serve, and {path} does not exist: write --config FILE, or --media and --listen; `nvmirage up ram --size 8GiB` serves a first drive\n\nUsage: nvmirage serve [--config FILE | --media KIND --listen ADDRESS]"
    )))
}

/// Description of the program for the holder.
const PROGRAM: Program = Program {
    version: env!("CARGO_PKG_VERSION"),
    reads_from: server::OLDEST_STATE_FORMAT,
    writes: server::STATE_FORMAT,
};

/// Becomes the holder of a server that runs this command again; ends with its exit status.
fn hold(until_eof: bool) -> anyhow::Result<()> {
    match holder::hold(std::env::args_os().collect(), until_eof)? {
        Ended::Worker(0) => Ok(()),
        Ended::Worker(status) => std::process::exit(status.into()),
        Ended::Signal => anyhow::bail!("the server's process had ended, and could not be replaced"),
    }
}

impl Serve {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let holder = match Holder::of_environment(&PROGRAM) {
            // The server ended before this process was wanted.
            Err(HolderError::Ended) => return Ok(()),
            holder => holder?,
        };
        if self.config.is_none() && self.media.is_empty() {
            self.config = Some(default_config(Path::new(DEFAULT_CONFIG))?);
        }
        let mut config = self.read_for(holder.as_ref())?;
        let source = self.config.as_ref();
        let source = source.map(|file| Source::new(file, &config)).transpose()?;
        self.override_in(&mut config)?;
        logging::configure(&config.log).map_err(UsageError)?;
        if (self.survive || config.survival.enabled) && holder.is_none() {
            return hold(self.stop_at_eof);
        }
        let saved = self.saved(&mut config, holder.as_ref())?;
        let serving = Serving {
            config,
            saved,
            source,
            default_socket: Address::default_of_server(),
            stop_at_eof: self.stop_at_eof && holder.is_none(),
            holder: holder.map(Arc::new),
        };
        process::run(serving, |_| Ok(()))
    }

    #[cfg(test)]
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let mut config = self.read()?;
        self.override_in(&mut config)?;
        Ok(config)
    }

    /// As [`Self::read`]; the next process of a server begins with what the last one had read, also
    /// where the file was edited since.
    fn read_for(&self, holder: Option<&Holder>) -> anyhow::Result<Config> {
        let (Some(file), Some(holder)) = (&self.config, holder) else {
            return self.read();
        };
        let kept = holder.fetch_bytes(CONFIGURATION, config::MAX_FILE_LEN)?;
        let kept = kept.map(String::from_utf8).transpose()?;
        let text = kept.map_or_else(|| config::text_of(file, read_text), Ok)?;
        holder.keep_bytes(CONFIGURATION, text.as_bytes())?;
        let config = config::from_text(&text, read_text);
        config.with_context(|| format!("{} cannot be used", file.display()))
    }

    /// The configuration from the file or from the short form.
    fn read(&self) -> anyhow::Result<Config> {
        match (&self.config, &self.listen) {
            (Some(file), _) => config::from_file(file, read_text),
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
        if let Some(folder) = &self.state_dir {
            config.state_dir = Some(std::path::absolute(folder)?);
        }
        config.read_presets(read_text);
        let problems = config.problems_of_new();
        if !problems.is_empty() {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(UsageError(lines.join("\n")).into());
        }
        Ok(())
    }

    /// Merges objects that were created at run time into the configuration. Nothing is saved for a
    /// drive that the command line defines, nor without a state folder unless one was requested.
    fn saved(&self, config: &mut Config, holder: Option<&Holder>) -> anyhow::Result<Option<Saved>> {
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
        // That of this server is replaced, and loses nothing.
        let is_first = holder.is_none_or(|holder| holder.generation() == 1);
        if let Some(process) = saved.killed().filter(|_| is_first) {
            tracing::warn!(
                "the last server of this configuration (process {process}) was killed: flushed data is complete, state of timing models is that of their last checkpoint (state_interval, by default 60 s)"
            );
        }
        Ok(Some(saved))
    }

    /// One controller, `nvme0`, with a namespace for each medium.
    fn short_form(&self, listen: Listen) -> anyhow::Result<Config> {
        let told_apart_by = self.media.iter().find_map(|arg| arg.medium.path.as_deref());
        let told_apart_by = match told_apart_by.or(listen.path()) {
            Some(path) => std::path::absolute(path)?,
            None => PathBuf::from(listen.to_string()),
        };
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
            let mut namespace = config::Namespace::new(namespace, medium);
            namespace.lba_size = arg.lba_size.unwrap_or(namespace.lba_size);
            config.namespace.push(namespace);
        }
        config.controller.push(controller);
        Ok(config)
    }
}
