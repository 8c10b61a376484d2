//! A copy of the working tree that may be changed at will. The user's own tree is only read.
//!
//! Files keep their times where they did not change, so that a build in the copy is incremental.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Makes the folder `root` a copy of what git tracks, or would track, in `source`: whatever an
    /// earlier copy was left with.
    ///
    /// # Errors
    /// git cannot be run, or a file cannot be read or written.
    pub(super) fn copy(source: &Path, root: PathBuf) -> Result<Self> {
        let names = names(source)?;
        for name in &names {
            write_if_new(&root.join(name), &fs::read(source.join(name))?)?;
        }
        remove_others(&root, &root, &names)?;
        Ok(Self { root })
    }

    /// Where it is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.root.join(name)).with_context(|| format!("cannot read {name}"))
    }

    /// Gives a file another text.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.root.join(name), text).with_context(|| format!("cannot write {name}"))
    }
}

/// The files that git tracks or would track, and that are there.
fn names(source: &Path) -> Result<BTreeSet<PathBuf>> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git")
        .current_dir(source)
        .args(list)
        .output()
        .context("cannot run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git ls-files failed: {}",
        said.trim()
    );
    let names = String::from_utf8(output.stdout)?;
    let there = |name: &&str| source.join(name).is_file();
    Ok(names.split('\0').filter(there).map(Into::into).collect())
}

fn write_if_new(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes the files of `folder`, in the copy `root`, that are not named.
fn remove_others(root: &Path, folder: &Path, names: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root).context("outside the copy")?;
        if path.is_dir() {
            remove_others(root, &path, names)?;
        } else if !names.contains(name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, args: &[&str]) {
        let status = Command::new("git").current_dir(folder).args(args).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn the_copy_follows_its_source_and_leaves_it_alone() {
        let source = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let (source, copy) = (source.path(), copy.path().join("tree"));
        git(source, &["init", "--quiet"]);
        fs::create_dir(source.join("a")).unwrap();
        for (name, text) in [("a/one", "1"), ("two", "2"), (".gitignore", "/out")] {
            fs::write(source.join(name), text).unwrap();
        }
        fs::write(source.join("out"), "built").unwrap();
        let tree = Tree::copy(source, copy.clone()).unwrap();
        assert_eq!(tree.read("a/one").unwrap(), "1");
        assert!(!copy.join("out").exists(), "what git ignores is not copied");
        let time = |name| fs::metadata(copy.join(name)).unwrap().modified().unwrap();
        let before = time("two");

        tree.write("a/one", "mutated").unwrap();
        assert_eq!(fs::read_to_string(source.join("a/one")).unwrap(), "1");
        fs::write(source.join("three"), "3").unwrap();
        fs::remove_file(source.join(".gitignore")).unwrap();
        fs::remove_file(source.join("out")).unwrap();
        let tree = Tree::copy(source, copy.clone()).unwrap();
        assert_eq!(tree.read("a/one").unwrap(), "1");
        assert_eq!(tree.read("three").unwrap(), "3");
        assert!(!copy.join(".gitignore").exists());
        assert_eq!(time("two"), before, "what did not change keeps its time");
    }
}
