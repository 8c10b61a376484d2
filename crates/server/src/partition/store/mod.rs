//! Storage of partition tables: one file per drive, in a folder of the state folder.
//!
//! The file is named after the drive's serial number. Any process may read it; the process that
//! holds the lock beside it replaces it as a whole. A server takes the lock when it opens a drive
//! with partitions, and holds it as long as the drive.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::config::Size;
use api::{Partition, Refusal};
use serde::{Deserialize, Serialize};

use super::{Owner, Table};
use crate::identity;
use crate::keep::claim::Claim;
use crate::keep::owned;

/// Version of the format; no other is read.
const FORMAT: u64 = 1;
/// Largest file that is read.
const MAX_LEN: u64 = 1 << 20;
/// The folder inside of the state folder.
const FOLDER: &str = "partitions";
/// Configuration key named in errors about a locked table.
const KEY: &str = "state_dir";

/// The part of the content that every version has.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

/// Content of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u64,
    owner: Owner,
    /// Size of the drive when the file was written.
    size: Size,
    partitions: Vec<Partition>,
}

/// The table of a drive, with its file.
#[derive(Debug)]
pub struct Store {
    owner: Owner,
    folder: PathBuf,
    /// The file's name without its extension.
    stem: String,
    table: Table,
    /// `None` while there is no file.
    claim: Option<Claim>,
}

impl Store {
    /// The table of a drive of `bytes` bytes. If its file exists, this process locks it.
    ///
    /// # Errors
    /// The file is locked by another process, is damaged, has another version, or does not fit the
    /// drive; the system's.
    pub fn open(state_dir: &Path, owner: Owner, bytes: u64) -> anyhow::Result<Self> {
        let folder = std::path::absolute(state_dir)?.join(FOLDER);
        let stem = stem_of(&owner);
        let mut store = Store {
            owner,
            folder,
            stem,
            table: Table::new(bytes, Vec::new()).expect("nothing is wrong with no partitions"),
            claim: None,
        };
        if store.path().exists() {
            store.claim()?;
        }
        Ok(store)
    }

    /// The table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem))
    }

    /// Locks the file and reads the table.
    fn claim(&mut self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| {
            format!(
                "cannot save partitions in {}: set state_dir to a writable folder",
                self.folder.display()
            )
        })?;
        let lock = self.folder.join(format!("{}.lock", self.stem));
        let claim = Claim::take(&lock, || {
            format!(
                "the partition table of {} is in use by another process, which holds the lock {}: use that process, or stop it",
                self.owner,
                lock.display()
            )
        })?;
        let path = self.path();
        if let Some(content) = read(&path)? {
            let fits = || -> anyhow::Result<Table> {
                if content.owner != self.owner {
                    bail!("it is that of {}", content.owner);
                }
                Table::new(self.table.bytes(), content.partitions).map_err(anyhow::Error::msg)
            };
            self.table = fits().with_context(|| unusable(&path))?;
        }
        self.claim = Some(claim);
        Ok(())
    }

    /// Changes the table. On return, the change is either on stable storage or undone.
    ///
    /// # Errors
    /// The error of `change`; the file is locked by another process; the system's.
    pub fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Table) -> Result<T, String>,
    ) -> Result<T, Refusal> {
        if self.claim.is_none() {
            self.claim().map_err(|error| Refusal::failed(&error))?;
        }
        let mut table = self.table.clone();
        let changed = change(&mut table).map_err(Refusal::conflict)?;
        if table != self.table {
            self.write(&table)
                .map_err(|error| Refusal::failed(&error))?;
            self.table = table;
        }
        Ok(changed)
    }

    fn write(&self, table: &Table) -> anyhow::Result<()> {
        let content = Content {
            format: FORMAT,
            owner: self.owner.clone(),
            size: Size(table.bytes()),
            partitions: table.partitions().to_vec(),
        };
        let mut bytes = serde_json::to_vec_pretty(&content)?;
        bytes.push(b'\n');
        owned::replace(&self.path(), KEY, |file| file.write_all(&bytes))
            .and_then(|replaced| replaced.durable)
    }
}

/// All tables in a state folder, with their owners. Does not access any drive.
///
/// # Errors
/// A table cannot be read.
pub fn stored(state_dir: &Path) -> anyhow::Result<Vec<(Owner, Table)>> {
    let folder = std::path::absolute(state_dir)?.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", folder.display()));
        }
    };
    let mut tables = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let Some(content) = read(&path)? else {
            continue;
        };
        let table = Table::new(content.size.0, content.partitions).map_err(anyhow::Error::msg);
        tables.push((content.owner, table.with_context(|| unusable(&path))?));
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tables)
}

fn unusable(path: &Path) -> String {
    format!(
        "cannot use the partition table {}: restore it, or remove it to have no partitions",
        path.display()
    )
}

fn read(path: &Path) -> anyhow::Result<Option<Content>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let parse = || -> anyhow::Result<Content> {
        if bytes.len() as u64 > MAX_LEN {
            bail!("it is larger than {MAX_LEN} bytes");
        }
        let Head { format } = serde_json::from_slice(&bytes)?;
        if format != FORMAT {
            bail!(
                "unsupported format {format}; this version reads {FORMAT}: use the version that wrote it"
            );
        }
        Ok(serde_json::from_slice(&bytes)?)
    };
    parse().map(Some).with_context(|| unusable(path))
}

/// Name of a drive's file: its serial number, as far as that is valid in a file name, and a digest
/// of the drive's whole identity.
fn stem_of(owner: &Owner) -> String {
    let (name, all) = match owner {
        Owner::Drive {
            serial,
            model,
            nsid,
            volume,
        } => {
            let mut all = format!("{model}\0{serial}\0{nsid}");
            if let Some(volume) = volume {
                all.push('\0');
                all.push_str(volume);
            }
            (serial.as_str(), all.into())
        }
        Owner::File { path } => {
            let name = path.file_name().and_then(|name| name.to_str());
            (name.unwrap_or("file"), path.clone())
        }
    };
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(40)
        .collect();
    identity::name_apart(&clean, &all)
}

#[cfg(test)]
mod tests;
