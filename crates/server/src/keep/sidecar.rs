//! The sidecar of a subsystem, which saves its changes: format, location, and lock.
//!
//! A new version is written under another name, made durable, and renamed: at any moment the file
//! has its old or its new content. The process that serves the subsystem holds a lock beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::config::{MediumKind, Namespace, Range};
use serde::{Deserialize, Serialize};
use subsystem::Record;

use super::claim::Claim;

/// Version of the format; no other is read.
const FORMAT: u64 = 1;
/// Largest file that is read, far above the need of 32 namespaces.
const MAX_LEN: u64 = 16 << 20;
/// The folder inside of the state folder.
const FOLDER: &str = "subsystems";

/// The part of the content that every version has.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

/// Content of a sidecar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sidecar {
    format: u64,
    /// Name of the subsystem.
    pub(crate) subsystem: String,
    /// The configuration that its namespaces were created with; `None` if they are as in any
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) configuration: Option<Basis>,
    /// Its record; without namespaces if these are as configured.
    pub(crate) record: Record,
}

impl Sidecar {
    /// The sidecar of a subsystem that is served with this configuration, and whose record would be
    /// `plain` without changes. Unchanged namespaces are omitted, so that an operator can edit the
    /// configuration as if there were no file.
    pub(crate) fn new(
        subsystem: String,
        configuration: Basis,
        mut record: Record,
        plain: Option<&Record>,
    ) -> Self {
        let is_plain = |plain: &Record| {
            record.namespaces == plain.namespaces
                && record.deleted == plain.deleted
                && record.created == plain.created
        };
        let are_plain = plain.is_some_and(is_plain);
        if are_plain {
            record.namespaces.clear();
        }
        Sidecar {
            format: FORMAT,
            subsystem,
            configuration: (!are_plain).then_some(configuration),
            record,
        }
    }
}

/// The configuration of a subsystem, for comparison with later ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Basis {
    /// Its media.
    pub(crate) media: Vec<MediumBasis>,
    /// Its namespaces.
    pub(crate) namespaces: Vec<NamespaceBasis>,
}

/// Identity of a medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MediumBasis {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: MediumKind,
    /// Absolute path of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathBuf>,
}

/// The configuration of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceBasis {
    /// Its name.
    pub(crate) name: String,
    /// Its range on the medium; `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<Range>,
    /// The controllers that list it.
    pub(crate) controllers: Vec<String>,
}

/// Location of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    folder: PathBuf,
    subsystem: String,
    /// The file's name without its extension.
    stem: String,
}

impl Place {
    /// The location of a subsystem's sidecar in a state folder, by its [lasting
    /// name](crate::identity::lasting_name).
    ///
    /// # Errors
    /// The state folder is relative, and the working directory is unknown.
    pub(crate) fn new(state_dir: &Path, subsystem: &str, lasting: &str) -> io::Result<Self> {
        Ok(Place {
            folder: std::path::absolute(state_dir)?.join(FOLDER),
            subsystem: subsystem.to_owned(),
            stem: lasting.to_owned(),
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem))
    }

    /// Creates its folder.
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| {
            format!(
                "cannot save changes by hosts in {}: set state_dir to a writable folder",
                self.folder.display()
            )
        })
    }

    /// Takes the lock, in an existing folder. While it is held, no other process serves the
    /// subsystem.
    pub(crate) fn claim(&self) -> anyhow::Result<Claim> {
        let path = self.folder.join(format!("{}.lock", self.stem));
        Claim::take(&path, || {
            format!(
                "subsystem {} is served by another process, which holds the lock {}: stop that process, give this subsystem another name in a configuration, or set another state_dir",
                self.subsystem,
                path.display()
            )
        })
    }

    /// Removes the sidecar: there are no changes.
    pub(crate) fn forget(&self) -> anyhow::Result<()> {
        let path = self.path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes deleted namespaces from the sidecar of a subsystem that has ended, except those that
    /// are configured: the configuration may get another one with that name.
    pub(crate) fn forget_deleted(&self, configured: &[Namespace]) -> anyhow::Result<()> {
        let Some(mut sidecar) = self.read()? else {
            return Ok(());
        };
        let deleted = &mut sidecar.record.deleted;
        let before = deleted.len();
        deleted.retain(|name| configured.iter().any(|one| one.name == *name));
        if deleted.len() < before {
            let path = self.path();
            let written = self.write(&sidecar);
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Reads the sidecar; `None` if there are no changes.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Sidecar>> {
        let path = self.path();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let read = || -> anyhow::Result<Sidecar> {
            let mut bytes = Vec::new();
            file.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
            self.parse(&bytes)
        };
        let sidecar = read().with_context(|| {
            format!(
                "cannot use {}, the saved changes of subsystem {}",
                path.display(),
                self.subsystem
            )
        })?;
        Ok(Some(sidecar))
    }

    fn parse(&self, bytes: &[u8]) -> anyhow::Result<Sidecar> {
        const REMEDY: &str = "restore it, or remove it: then only the configuration applies, and namespaces that hosts created are lost";
        if bytes.len() as u64 > MAX_LEN {
            bail!("it is larger than {MAX_LEN} bytes; {REMEDY}");
        }
        let damaged =
            |error: serde_json::Error| anyhow::anyhow!("it is damaged ({error}); {REMEDY}");
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        if head.format != FORMAT {
            bail!(
                "unsupported format {}; this version reads {FORMAT}: use the version that wrote it",
                head.format
            );
        }
        let sidecar: Sidecar = serde_json::from_slice(bytes).map_err(damaged)?;
        if sidecar.subsystem != self.subsystem {
            bail!("it belongs to subsystem {}; {REMEDY}", sidecar.subsystem);
        }
        Ok(sidecar)
    }

    /// Replaces the sidecar atomically.
    ///
    /// # Errors
    /// The system's; the old file is unchanged.
    pub(crate) fn write(&self, sidecar: &Sidecar) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(sidecar)?;
        bytes.push(b'\n');
        let path = self.path();
        let temporary = self.folder.join(format!("{}.json.new", self.stem));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {

    use subsystem::{ControllerId, ControllerRecord, NamespaceRecord};

    use super::*;

    fn sidecar() -> Sidecar {
        let record = Record {
            deleted: vec!["home".to_owned()],
            created: 3,
            controllers: vec![ControllerRecord::new("vm1", ControllerId(1))],
            ..Record::default()
        };
        let configuration = Basis {
            media: vec![MediumBasis {
                name: "disk".to_owned(),
                kind: MediumKind::File,
                path: Some("/a/disk.img".into()),
            }],
            namespaces: vec![NamespaceBasis {
                name: "root".to_owned(),
                range: Some("0GiB..1GiB".parse().unwrap()),
                controllers: vec!["vm1".to_owned()],
            }],
        };
        Sidecar::new("pair".to_owned(), configuration, record, None)
    }

    #[test]
    fn namespaces_as_the_configuration_says_are_left_out() {
        let namespace = NamespaceRecord {
            nsid: 1,
            ..Default::default()
        };
        let plain = Record {
            namespaces: vec![namespace],
            controllers: vec![ControllerRecord::new("vm1", ControllerId(1))],
            ..Record::default()
        };
        let made = |record: &Record| {
            Sidecar::new(
                "s".to_owned(),
                Basis::default(),
                record.clone(),
                Some(&plain),
            )
        };
        let same = made(&plain);
        assert_eq!(same.configuration, None);
        assert_eq!(same.record.namespaces, []);
        assert_eq!(same.record.controllers, plain.controllers);
        let changes: [fn(&mut Record); 3] = [
            |record| record.namespaces[0].lba_size = 512,
            |record| record.deleted.push("home".to_owned()),
            |record| record.created = 1,
        ];
        for change in changes {
            let mut record = plain.clone();
            change(&mut record);
            let changed = made(&record);
            assert_eq!(changed.configuration, Some(Basis::default()));
            assert_eq!(changed.record, record);
        }
    }

    fn place() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), "pair", "pair").unwrap();
        place.prepare().unwrap();
        (dir, place)
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_left() {
        let (dir, place) = place();
        let _claim = place.claim().unwrap();
        assert_eq!(place.read().unwrap(), None);
        place.write(&sidecar()).unwrap();
        assert_eq!(place.read().unwrap(), Some(sidecar()));
        let names = fs::read_dir(dir.path().join(FOLDER)).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["pair.json", "pair.lock"]);
    }

    #[test]
    fn names_of_namespaces_are_written_as_digits() {
        let namespace = NamespaceRecord {
            nguid: [1; 16],
            eui64: [0xf2; 8],
            ..NamespaceRecord::default()
        };
        let text = serde_json::to_string(&namespace).unwrap();
        let nguid = "\"nguid\":\"01010101010101010101010101010101\"";
        let eui64 = "\"eui64\":\"f2f2f2f2f2f2f2f2\"";
        assert!(text.contains(nguid) && text.contains(eui64), "{text}");
        let read: NamespaceRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, namespace);
        for wrong in [
            "f2f2f2f2f2f2f2",
            "f2f2f2f2f2f2f2f2f2",
            "f2f2f2f2f2f2f2+2",
            "f2f2f2f2f2f2f2\u{e9}",
        ] {
            let text = text.replace("f2f2f2f2f2f2f2f2", wrong);
            let error = serde_json::from_str::<NamespaceRecord>(&text).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("is not 16 hexadecimal digits"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn every_truncation_is_an_error_that_names_the_file() {
        let (_dir, place) = place();
        let _claim = place.claim().unwrap();
        place.write(&sidecar()).unwrap();
        let whole = fs::read(place.path()).unwrap();
        // a file without its last line feed is still complete
        for len in 0..whole.len() - 1 {
            fs::write(place.path(), &whole[..len]).unwrap();
            let error = format!("{:#}", place.read().unwrap_err());
            assert!(error.contains("pair.json"), "{len}: {error}");
            assert!(
                error.contains("damaged") && error.contains("remove it"),
                "{len}: {error}"
            );
        }
    }

    #[test]
    fn other_formats_other_subsystems_and_unknown_keys_are_errors() {
        let (_dir, place) = place();
        let _claim = place.claim().unwrap();
        place.write(&sidecar()).unwrap();
        let whole = fs::read_to_string(place.path()).unwrap();
        for (from, to, says) in [
            (
                "\"format\": 1",
                "\"format\": 2",
                "unsupported format 2; this version reads 1",
            ),
            (
                "\"subsystem\": \"pair\"",
                "\"subsystem\": \"other\"",
                "it belongs to subsystem other",
            ),
            ("\"created\": 3", "\"created\": -3", "damaged"),
            ("\"created\": 3", "\"creatde\": 3", "damaged"),
            ("\"kind\": \"file\"", "\"kind\": \"tape\"", "damaged"),
        ] {
            assert!(whole.contains(from), "{from}");
            fs::write(place.path(), whole.replacen(from, to, 1)).unwrap();
            let error = format!("{:#}", place.read().unwrap_err());
            assert!(error.contains(says), "{to}: {error}");
        }
        // a later format may have other keys
        fs::write(place.path(), "{\"format\": 7, \"news\": []}").unwrap();
        let error = format!("{:#}", place.read().unwrap_err());
        assert!(error.contains("unsupported format 7"), "{error}");
    }

    #[test]
    fn a_subsystem_is_claimed_once() {
        let (_dir, place) = place();
        let first = place.claim().unwrap();
        let error = format!("{:#}", place.claim().unwrap_err());
        assert!(error.contains("served by another process"), "{error}");
        drop(first);
        place.claim().unwrap();
    }
}
