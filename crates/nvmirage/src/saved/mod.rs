//! What is made, changed and deleted over the control socket, over a restart.
//!
//! Beside the state of subsystems there is a file for each configuration that is served, written
//! whole before a change is answered. It holds the objects as the configuration had them, and as
//! they are: at the next start [`merge`] puts the two together with the configuration as it is
//! then, and what comes of it is written as soon as it is served. Nothing is written while nothing
//! was changed.
//!
//! What hosts and operators change of namespaces (attachments, sizes) is kept by their
//! [subsystems](crate::keep); moves of single queues and the log are not kept.

pub(crate) mod merge;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::merge::{Merged, Objects, merge};
use crate::config::Config;
use crate::identity;
use crate::keep::claim::Claim;
use crate::keep::owned;

/// The version of the file's layout.
const VERSION: u32 = 1;
/// The folder of these files, in that of the state.
const FOLDER: &str = "runtime";
/// The longest file that is read: a thousand objects take some hundred kilobytes.
const MAX_LEN: u64 = 64 << 20;

/// What the file holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// The configuration that it belongs to, for who reads it.
    configuration: PathBuf,
    /// What the configuration had.
    then: Objects,
    /// What there is.
    now: Objects,
}

/// The file of one configuration; nobody else writes it.
#[derive(Debug)]
pub(crate) struct Saved {
    path: PathBuf,
    content: Content,
    /// The file says something else, of which something is lost.
    behind: Option<Behind>,
    _claim: Claim,
}

/// How a file that was found differs from what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// All that it had made is still so.
    NothingLost,
    /// Some of it counts no longer.
    SomeLost,
}

impl Saved {
    /// Takes the file in `folder` that belongs to the configuration at `file`, and puts what it has
    /// into `config`, of which there are lines to be told where something is lost by that. With
    /// `forget` it is put aside first.
    ///
    /// # Errors
    /// Another server has it; it cannot be read, or what comes of it is no configuration: what to
    /// do is said.
    pub(crate) fn take(
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
            configuration: file,
            then: of_file.clone(),
            now: of_file.clone(),
        };
        let mut lost = Vec::new();
        let mut behind = None;
        if let Some(found) = read(&path)? {
            let merged = merge(&found.then, &found.now, &of_file);
            let advice = || {
                format!(
                    "the saved run-time changes no longer fit the configuration: change the configuration, or start once with --forget, which renames {shown}"
                )
            };
            let Merged {
                objects,
                lost: lines,
            } = merged;
            content.now = objects.clone();
            objects.put_into(config);
            lost = lines;
            behind = match lost.is_empty() {
                true if content == found => None,
                true => Some(Behind::NothingLost),
                false => Some(Behind::SomeLost),
            };
            let problems = config.validate();
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            ensure!(problems.is_empty(), "{}\n{}", lines.join("\n"), advice());
        }
        let saved = Saved {
            path,
            content,
            behind,
            _claim: claim,
        };
        Ok((saved, lost))
    }

    /// What came of the file and the configuration is served: from now on the file says that. Where
    /// something was lost by it, the file as it was is put aside first.
    ///
    /// # Errors
    /// The system's; the file is as it was, and the next change tries both again.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        match self.behind {
            None => Ok(()),
            Some(_) => self.write(),
        }
    }

    /// Writes what there is now, where it is not what was written last.
    ///
    /// # Errors
    /// The system's; what was written last is still there.
    pub(crate) fn keep(&mut self, now: Objects) -> anyhow::Result<()> {
        if now == self.content.now {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.content.now, now);
        let written = self.write();
        if written.is_err() {
            self.content.now = before;
        }
        written
    }

    /// The configuration was read again: from now on this is what it had.
    ///
    /// # Errors
    /// As [`Saved::keep`].
    pub(crate) fn rebase(&mut self, then: Objects, now: Objects) -> anyhow::Result<()> {
        if then == self.content.then && now == self.content.now {
            return Ok(());
        }
        let before = (
            std::mem::replace(&mut self.content.then, then),
            std::mem::replace(&mut self.content.now, now),
        );
        let written = self.write();
        if written.is_err() {
            (self.content.then, self.content.now) = before;
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

/// The folder of these files, made where it is missing: in `state_dir`, or where state is kept by
/// default.
///
/// # Errors
/// There is no place by default, or it cannot be made.
pub(crate) fn folder(state_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let place = match state_dir {
        Some(place) => place.to_owned(),
        None => identity::default_state_dir()?,
    };
    let folder = place.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The file of a configuration: named after it, and told from others of its name by its folder.
fn name_of(file: &Path) -> String {
    let digest = Sha256::digest(file.as_os_str().as_encoded_bytes());
    let digits: String = digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-{digits}.json")
}

/// Moves a file out of the way; the one that was there before is gone.
fn put_aside(path: &Path) -> anyhow::Result<()> {
    aside(path, |aside| fs::rename(path, aside))
}

/// As [`put_aside`], and the file stays.
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
        Some(version) if version != u64::from(VERSION) => bail!(
            "{shown}: unsupported version {version}; this program reads version {VERSION}: use the program that wrote it, or start without it (--forget)"
        ),
        _ => {}
    }
    let content = serde_json::from_slice(&bytes).with_context(|| {
        format!("cannot read the saved run-time changes in {shown}: repair the file, or start without it (--forget)")
    })?;
    Ok(Some(content))
}
