//! Persistence of objects that are created, changed and deleted over the control socket.
//!
//! There is one file per configuration, beside the state of subsystems, written whole before a
//! change is answered. It holds the objects as the configuration had them, and as they are. At the
//! next start, [`merge`] combines both with the current configuration, and the result is written
//! once it is served. Without changes, no file is written.
//!
//! Changes of namespaces by hosts and operators (attachments, sizes) are saved by their
//! [subsystems](crate::keep). Moves of single queues and log settings are not persistent.
//!
//! A controller's default firmware revision is the program's version. The file therefore names the
//! version that wrote it, and a revision of that version counts as the default: otherwise the next
//! version would take every controller of the configuration for edited.

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use api::config::{Config, Controller, Listen, SocketMode};
use machine::files::read_text;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::identity;
use crate::keep::claim::Claim;
use crate::keep::owned;
use crate::reconcile::inventory::{Objects, find};
use crate::reconcile::merge::{Merged, merge};
use crate::reconcile::unfinished::Unfinished;

/// Version of the file format. Version 1 does not know what is unfinished; it is read, too.
const VERSION: u32 = 2;
/// Folder of these files, in the state folder.
const FOLDER: &str = "runtime";
/// Longest file that is read. A thousand objects take some hundred kilobytes.
const MAX_LEN: u64 = 64 << 20;

/// Content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// Default firmware revision of the program that wrote it.
    #[serde(default = "first_revision")]
    default_revision: String,
    /// Path of the configuration, for information only.
    configuration: PathBuf,
    /// Objects of the configuration.
    then: Objects,
    /// Desired objects: those that are served, and those that the last plan did not get to.
    now: Objects,
    /// Objects that the last plan has taken away and not given back.
    #[serde(default, skip_serializing_if = "Unfinished::is_empty")]
    unfinished: Unfinished,
}

impl Content {
    /// Removes the `socket_mode` of mounts: it has no effect and is refused, and earlier programs
    /// accepted it.
    fn drop_modes_of_mounts(&mut self) {
        let all = self.then.controller.iter_mut();
        for one in all.chain(&mut self.now.controller) {
            if matches!(one.listen, Listen::Fuse(_)) {
                one.socket_mode = SocketMode::default();
            }
        }
    }

    /// Whether it says the same as another one, whatever the version.
    fn is_as(&self, other: &Content) -> bool {
        *self
            == Content {
                version: self.version,
                ..other.clone()
            }
    }

    /// Replaces the default firmware revision of the program that wrote the file by that of this
    /// program. A controller follows its configuration, or that of its subsystem, which may
    /// state the revision.
    fn renew(&mut self, file: &Objects, default: &str) {
        let old = std::mem::replace(&mut self.default_revision, default.to_owned());
        let is_default = |one: &&mut Controller| one.firmware_revision == old;
        let mut follow = file.controller.clone();
        follow.retain(|one| {
            let then = find(&self.then.controller, &one.name);
            then.is_some_and(|then| then.firmware_revision == old)
        });
        let all = self.then.controller.iter_mut();
        for one in all.chain(&mut self.now.controller).filter(is_default) {
            let mut beside = follow.iter().filter(|c| c.subsystem() == one.subsystem());
            let it = find(&follow, &one.name).or_else(|| beside.next());
            let revision = it.map_or(default, |it| &it.firmware_revision);
            one.firmware_revision = revision.to_owned();
        }
    }
}

/// Default firmware revision of the programs whose files do not name it.
fn first_revision() -> String {
    "0.1.0".to_owned()
}

/// Default firmware revision of this program.
fn default_revision() -> String {
    Controller::new(String::new(), Listen::Unix(PathBuf::new())).firmware_revision
}

/// The file of one configuration, locked by this process.
#[derive(Debug)]
pub struct Saved {
    path: PathBuf,
    content: Content,
    /// How the file differs from `content`, if it has not been written since.
    behind: Option<Behind>,
    claim: Claim,
}

/// Difference between a file and the result of its merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// All run-time changes still apply.
    NothingLost,
    /// Some run-time changes were overridden.
    SomeLost,
}

impl Saved {
    /// Locks the file in `folder` for the configuration at `file`, and merges its objects into
    /// `config`. Returns a line for each change that is lost. With `forget`, the file is renamed
    /// first.
    ///
    /// # Errors
    /// Another server has locked the file; the file cannot be read; the result is not a valid
    /// configuration, and the message says what to do.
    pub fn take(
        folder: &Path,
        file: &Path,
        config: &mut Config,
        forget: bool,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let file = std::path::absolute(file)?;
        let path = folder.join(name_of(&file));
        let shown = path.display().to_string();
        let claim = Claim::take(&path.with_extension("lock"), || {
            format!(
                "another server saves its run-time changes in {shown}: serve each configuration once, or give the other server its own state_dir"
            )
        })?;
        if forget && path.exists() {
            put_aside(&path)?;
        }
        let of_file = Objects::of(config);
        let mut content = Content {
            version: VERSION,
            default_revision: default_revision(),
            configuration: file,
            then: of_file.clone(),
            now: of_file.clone(),
            unfinished: Unfinished::default(),
        };
        let mut lost = Vec::new();
        let mut behind = None;
        if let Some(found) = read(&path)? {
            let mut renewed = found.clone();
            renewed.renew(&of_file, &content.default_revision);
            let merged = merge(&renewed.then, &renewed.now, &of_file);
            let advice = || {
                format!(
                    "the saved run-time changes no longer fit the configuration: change the configuration, or start once with --forget, which renames {shown}"
                )
            };
            let Merged {
                objects,
                lost: lines,
            } = merged;
            content.unfinished = renewed.unfinished;
            let (before, after) = (&renewed.now.controller, &objects.controller);
            content.unfinished.follow_lists(before, after);
            content.now = objects.clone();
            objects.put_into(config);
            lost = lines;
            behind = match lost.is_empty() {
                true if content.is_as(&found) => None,
                true => Some(Behind::NothingLost),
                false => Some(Behind::SomeLost),
            };
            config.read_presets(read_text);
            let problems = config.validate();
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            ensure!(problems.is_empty(), "{}\n{}", lines.join("\n"), advice());
        }
        let saved = Saved {
            path,
            content,
            behind,
            claim,
        };
        Ok((saved, lost))
    }

    /// The server of this configuration that was killed, if the last one did not stop.
    pub fn killed(&self) -> Option<u32> {
        self.claim.killed()
    }

    /// Objects that the last plan of an earlier process has not given back.
    pub(crate) fn unfinished(&self) -> &Unfinished {
        &self.content.unfinished
    }

    /// Writes the result of the merge, once it is served, so that nothing is unfinished. If changes
    /// were lost, keeps a copy of the file first.
    ///
    /// # Errors
    /// The system's. The file is unchanged, and the next change tries both again.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        if self.behind.is_none() && self.content.unfinished.is_empty() {
            return Ok(());
        }
        let content = Content {
            unfinished: Unfinished::default(),
            ..self.content.clone()
        };
        self.replace(content)
    }

    /// Writes the desired objects and what is unfinished, if they differ from the file.
    ///
    /// # Errors
    /// The system's. The file is unchanged.
    pub(crate) fn keep(&mut self, now: &Objects, unfinished: &Unfinished) -> anyhow::Result<()> {
        let then = self.content.then.clone();
        self.plan(&then, now, unfinished)
    }

    /// The same, with new objects of the configuration: before the first step of a reload.
    ///
    /// # Errors
    /// As [`Saved::keep`].
    pub(crate) fn plan(
        &mut self,
        then: &Objects,
        now: &Objects,
        unfinished: &Unfinished,
    ) -> anyhow::Result<()> {
        let Content {
            version,
            default_revision,
            configuration,
            ..
        } = self.content.clone();
        let content = Content {
            version,
            default_revision,
            configuration,
            then: then.clone(),
            now: now.clone(),
            unfinished: unfinished.clone(),
        };
        if content == self.content {
            return Ok(());
        }
        self.replace(content)
    }

    fn replace(&mut self, content: Content) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.content, content);
        let written = self.write();
        if written.is_err() {
            self.content = before;
        }
        written
    }

    fn write(&mut self) -> anyhow::Result<()> {
        if self.behind == Some(Behind::SomeLost) {
            keep_copy(&self.path)?;
        }
        let replaced = owned::replace(&self.path, "state_dir", |file| {
            let mut file = BufWriter::new(file);
            serde_json::to_writer_pretty(&mut file, &self.content)?;
            file.write_all(b"\n")?;
            file.flush()
        })?;
        self.behind = None;
        replaced.durable
    }
}

/// Creates the folder of these files if needed, in `state_dir` or the default state folder.
///
/// # Errors
/// There is no default, or the folder cannot be created.
pub fn folder(state_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let place = match state_dir {
        Some(place) => place.to_owned(),
        None => identity::default_state_dir()?,
    };
    let folder = place.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Name of a configuration's file: the configuration's name, with a digest of its path.
fn name_of(file: &Path) -> String {
    let digest = Sha256::digest(file.as_os_str().as_encoded_bytes());
    let digits: String = digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-{digits}.json")
}

/// Renames a file; an earlier file of the new name is replaced.
fn put_aside(path: &Path) -> anyhow::Result<()> {
    aside(path, |aside| fs::rename(path, aside))
}

/// As [`put_aside`], but copies the file.
fn keep_copy(path: &Path) -> anyhow::Result<()> {
    aside(path, |aside| {
        fs::copy(path, aside)?;
        fs::File::open(aside)?.sync_all()
    })
}

fn aside(path: &Path, put: impl FnOnce(&Path) -> io::Result<()>) -> anyhow::Result<()> {
    let aside = path.with_extension("old.json");
    put(&aside)
        .with_context(|| format!("cannot rename {} to {}", path.display(), aside.display()))?;
    tracing::warn!("run-time changes are renamed to {}", aside.display());
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Option<Content>> {
    let shown = path.display();
    let len = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    if len > MAX_LEN {
        bail!(
            "{shown}: unexpected size {len} bytes; not a nvmirage state file. Move it away and start again"
        );
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let version = serde_json::from_slice::<serde_json::Value>(&bytes)
        .ok()
        .and_then(|value| value["version"].as_u64());
    match version {
        Some(version) if version > u64::from(VERSION) || version == 0 => bail!(
            "{shown}: unsupported version {version}; this program reads versions up to {VERSION}: use the program that wrote it, or start without it (--forget)"
        ),
        _ => {}
    }
    let mut content: Content = serde_json::from_slice(&bytes).with_context(|| {
        format!("cannot read the saved run-time changes in {shown}: repair the file, or start without it (--forget)")
    })?;
    content.drop_modes_of_mounts();
    Ok(Some(content))
}
