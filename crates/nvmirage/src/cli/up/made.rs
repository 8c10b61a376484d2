//! Objects that `nvmirage up` has created so far. If a later step fails, they are removed in
//! reverse order; objects that existed before stay.

use std::path::{Path, PathBuf};
use std::{fs, io};

use client::{Address, requests};

/// Something that did not exist before.
#[derive(Debug)]
enum Thing {
    Folder(PathBuf),
    /// A medium's file. The server creates it when it opens the medium.
    File(PathBuf),
    /// An object of a server: its kind in the API, the word for it, and its name.
    Object(&'static str, &'static str, String),
}

/// The created objects, in order; see the module.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<Thing>);

impl Made {
    /// Creates a folder and its missing parents.
    pub(super) fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let missing = folder.ancestors().take_while(|path| !path.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        let made = fs::create_dir_all(folder);
        let outermost_first = missing.into_iter().rev().map(Thing::Folder);
        self.0.extend(outermost_first);
        made
    }

    /// Registers a file that is about to be created, unless it exists.
    pub(super) fn file(&mut self, path: &Path) {
        if fs::symlink_metadata(path).is_err() {
            self.0.push(Thing::File(path.to_owned()));
        }
    }

    /// Registers an object that the server has just created.
    pub(super) fn object(&mut self, kind: &'static str, word: &'static str, name: &str) {
        self.0.push(Thing::Object(kind, word, name.to_owned()));
    }

    /// Keeps everything.
    pub(super) fn keep(&mut self) {
        self.0.clear();
    }

    /// Removes everything, the last object first. Returns a message about objects that remain, if
    /// any.
    pub(super) fn undo(&mut self, server: &Address) -> Option<String> {
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        while let Some(thing) = self.0.pop() {
            // objects that depend on the remaining one still exist
            let removed = if left.is_empty() {
                thing.remove(server)
            } else {
                Err(anyhow::anyhow!("what was made after it is still there"))
            };
            match removed {
                Ok(true) => gone.push(thing.to_string()),
                Ok(false) => {}
                Err(error) => left.push(format!("{thing} ({error:#})")),
            }
        }
        let said = |list: &[String], verb| {
            let list = (!list.is_empty()).then(|| list.join(", "))?;
            Some(format!("{verb} {list}"))
        };
        let parts = [
            said(&gone, "removed what it had made:"),
            said(&left, "could not remove"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Thing {
    /// Removes the object; returns whether it existed.
    fn remove(&self, server: &Address) -> anyhow::Result<bool> {
        let removed = match self {
            Thing::Folder(path) => fs::remove_dir(path),
            Thing::File(path) => fs::remove_file(path),
            Thing::Object("controllers", _, name) => {
                requests::delete_controller(server, name, false)?;
                Ok(())
            }
            Thing::Object(kind, _, name) => {
                requests::delete(server, kind, name)?;
                Ok(())
            }
        };
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thing::Folder(path) => write!(f, "folder {}", path.display()),
            Thing::File(path) => write!(f, "file {}", path.display()),
            Thing::Object(_, word, name) => write!(f, "{word} {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use client::Intent;

    use super::*;

    #[test]
    fn folders_and_files_go_again_and_those_of_before_stay() {
        let dir = tempfile::tempdir().unwrap();
        let server = Address::find(Some(dir.path().join("none")), Intent::Change).unwrap();
        let before = dir.path().join("before");
        fs::write(&before, "x").unwrap();
        let mut made = Made::default();
        made.folder(&dir.path().join("a/b")).unwrap();
        made.file(&before);
        let file = dir.path().join("a/b/disk.img");
        made.file(&file);
        fs::write(&file, "").unwrap();
        // a file that was never created needs no message
        made.file(&dir.path().join("never"));
        let said = made.undo(&server).unwrap();
        assert!(
            said.starts_with("removed what it had made: file "),
            "{said}"
        );
        assert!(
            said.contains("a/b/disk.img, folder ") && !said.contains("never"),
            "{said}"
        );
        assert!(before.exists() && !dir.path().join("a").exists());
        assert_eq!(made.undo(&server), None);
    }

    #[test]
    fn what_cannot_go_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let server = Address::find(Some(dir.path().join("none")), Intent::Change).unwrap();
        let mut made = Made::default();
        made.folder(&dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/other"), "x").unwrap();
        made.object("media", "media", "m");
        let said = made.undo(&server).unwrap();
        assert!(said.starts_with("could not remove media m"), "{said}");
        assert!(dir.path().join("a/other").exists());
    }

    #[test]
    fn what_is_kept_stays() {
        let dir = tempfile::tempdir().unwrap();
        let server = Address::find(Some(dir.path().join("none")), Intent::Change).unwrap();
        let mut made = Made::default();
        made.folder(&dir.path().join("a")).unwrap();
        made.keep();
        assert_eq!(made.undo(&server), None);
        assert!(dir.path().join("a").exists());
    }
}
