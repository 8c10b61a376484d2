//! `nvmirage up`: everything for a first drive, in one line.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use anyhow::Context;
use model::Parameters;

use super::{
    UsageError, live, parse,
    parse::Control,
    qemu_args::{self, DEFAULT_MEMORY},
    serve,
};
use crate::{
    config::{self, Config, Listen, Medium, MediumKind, Size, Timing, Zoned},
    control, qemu, report,
};

const EXAMPLES: &str = "\
Examples:
  nvmirage up samsung-970-pro --size 8GiB
      A drive of 8 GiB in memory with the time of a 970 Pro: medium, namespace, controller, socket
  nvmirage up file --size 64GiB --path disk.img --name vm1
      A drive in a file, for a guest called vm1
  nvmirage up zns-prototype --size 4GiB
      A zoned drive, with the zones of its preset

Where a server runs, it gets the drive; where none does, this one serves until it is told to stop.
The same line again changes nothing.";

/// Make a drive in one line, and print the QEMU options for it
///
/// Of a kind (null, ram, file, keyvalue) or a preset of a drive (nvmirage explain lists them), which lies in memory unless
/// --path names a file. Everything has the drive's name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Up {
    /// A kind of medium, a preset, or a file with one
    #[arg(value_name = "PRESET|KIND", add = live::presets())]
    what: String,

    /// The size of the drive
    #[arg(long)]
    size: Size,

    /// What the medium, its namespace and its controller are called
    #[arg(long, default_value = "nvme0")]
    name: String,

    /// The file that it lies in; created when it is missing
    #[arg(long)]
    path: Option<PathBuf>,

    /// Where guests reach it; default: NAME.sock beside the control socket
    #[arg(long, value_name = "vfio-user:PATH", value_parser = parse::listen)]
    listen: Option<Listen>,

    #[command(flatten)]
    control: Control,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let control = self.control.socket();
        let config = self.config(&control)?;
        let listen = config.controller[0].listen.clone();
        let socket = listen.path().to_str();
        let socket =
            socket.context("the socket's path is not UTF-8: QEMU's JSON cannot have it")?;
        let options = qemu::options(&self.name, socket, DEFAULT_MEMORY);
        // first of all: who has no QEMU for it wants to know before anything is made
        if let Some(warning) = qemu_args::warning(None) {
            report::progress::note(&format!("warning: {warning}"));
        }
        if UnixStream::connect(&control).is_err() {
            let dashboard = control::dashboard_address(&config.control.clone().unwrap_or_default());
            report::print(&format!(
                "for a guest: {}\n{dashboard}\n",
                in_one_line(&options)
            ))?;
            return serve::run(config, None, None, false);
        }
        let objects = &config;
        control::client::put(&control, "media", &self.name, &objects.media[0])?;
        control::client::put(&control, "namespaces", &self.name, &objects.namespace[0])?;
        control::client::put(&control, "controllers", &self.name, &objects.controller[0])?;
        let served = control::client::configuration(&control)?;
        let dashboard = control::dashboard_address(&served.control.unwrap_or_default());
        report::print(&format!(
            "ready: {listen} controller {}, namespaces {}\nfor a guest: {}\n{dashboard}\n",
            self.name,
            self.name,
            in_one_line(&options)
        ))
    }

    /// All of it, as a configuration.
    fn config(&self, control: &Path) -> anyhow::Result<Config> {
        let name = &self.name;
        let listen = match &self.listen {
            Some(listen) => parse::absolute_listen(listen.clone())?,
            None => Listen::VfioUser(beside(control, name)?),
        };
        if !matches!(listen, Listen::VfioUser(_)) {
            let text = format!(
                "--listen {listen}: a guest attaches to vfio-user:PATH; `nvmirage mount` makes files of a drive"
            );
            return Err(UsageError(text).into());
        }
        let medium = self.medium()?;
        let namespace = config::Namespace {
            name: name.clone(),
            media: name.clone(),
            range: None,
            partition: None,
            lba_size: config::DEFAULT_LBA_SIZE,
            nguid: None,
            eui64: None,
            tenant: None,
            weight: None,
        };
        let mut controller = config::Controller::new(name.clone(), listen);
        controller.namespaces.push(name.clone());
        let mut config = Config {
            short_form: Some(controller.listen.path().to_owned()),
            media: vec![medium],
            namespace: vec![namespace],
            controller: vec![controller],
            ..Config::default()
        };
        if self.control.is_given() {
            let asked_for = &mut config.control.get_or_insert_default().socket;
            *asked_for = Some(Listen::Unix(control.to_owned()));
        }
        let problems = config.validate();
        if !problems.is_empty() {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(UsageError(lines.join("\n")).into());
        }
        Ok(config)
    }

    fn medium(&self) -> anyhow::Result<Medium> {
        let path = self.path.clone().map(parse::absolute).transpose()?;
        let of = |kind| Medium {
            size: Some(self.size),
            path: path.clone(),
            ..Medium::new(self.name.clone(), kind)
        };
        match self.what.as_str() {
            "null" => return Ok(of(MediumKind::Null)),
            "ram" => return Ok(of(MediumKind::Ram)),
            "file" => return Ok(of(MediumKind::File)),
            "keyvalue" => return Ok(of(MediumKind::KeyValue)),
            _ => {}
        }
        let timing = Timing::of(self.what.clone()).absolute()?;
        timing.drive().map_err(|why| {
            let what = &self.what;
            UsageError(format!(
                "{what}: {why}; or write a kind: null, ram, file or keyvalue"
            ))
        })?;
        let parameters = timing
            .parameters(self.size.0)
            .map_err(|problems| UsageError(problems.join("; ")))?;
        let in_memory_or_file = match path {
            Some(_) => MediumKind::File,
            None => MediumKind::Ram,
        };
        let (kind, zoned) = match parameters {
            Parameters::Kv(_) => (MediumKind::KeyValue, None),
            Parameters::Zones(zones) => (
                in_memory_or_file,
                Some(Zoned::new(zones.zone_size_bytes, zones.zone_capacity_bytes)),
            ),
            _ => (in_memory_or_file, None),
        };
        Ok(Medium {
            timing: Some(timing),
            zoned,
            ..of(kind)
        })
    }
}

/// The socket of a controller, in the control socket's folder.
fn beside(control: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let control = std::path::absolute(control)?;
    let folder = control
        .parent()
        .context("the control socket has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| {
        format!(
            "cannot create {}: name a socket with --listen",
            folder.display()
        )
    })?;
    Ok(folder.join(format!("{name}.sock")))
}

fn in_one_line(options: &[[String; 2]]) -> String {
    let words = options
        .iter()
        .map(|[option, value]| format!("{option} {}", qemu::shell_quoted(value)));
    let words: Vec<String> = words.collect();
    format!("qemu-system-x86_64 … {}", words.join(" "))
}
