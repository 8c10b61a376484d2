//! The cache of fetched and built things: `$XDG_CACHE_HOME/nvmirage` (by default
//! `~/.cache/nvmirage`).
//!
//! Invariants: an entry is a folder whose name (its key) carries everything that went into making
//! it, so an entry is never changed, only made. It is made in a staging folder and renamed into
//! place: what has an entry's name is whole. One file lock lets one process at a time make entries.
//!
//! Not included: the removal of old entries. Removing the whole folder is always safe while nothing
//! runs.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Receives one line at a time about what is going on; the caller decides how to show it.
pub type Note<'a> = &'a mut dyn FnMut(&str);

/// The folder of entries. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the user's cache, creating its folder.
    ///
    /// # Errors
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set, or the folder cannot be created.
    pub fn open() -> Result<Self> {
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let base = match absolute("XDG_CACHE_HOME") {
            Some(base) => base,
            None => match absolute("HOME") {
                Some(home) => home.join(".cache"),
                None => bail!("neither XDG_CACHE_HOME nor HOME is set: set one of them"),
            },
        };
        Self::at(base.join("nvmirage"))
    }

    /// Opens a cache in the folder `root`, creating it.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
        Ok(Self { root })
    }

    /// Where entry `key` is, or would be.
    #[must_use]
    pub fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// The folder of entry `key`, if that entry has been made.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<PathBuf> {
        Some(self.path(key)).filter(|path| path.is_dir())
    }

    /// The folder of entry `key`; where it is missing, `make` fills an empty folder that then
    /// becomes the entry.
    ///
    /// Must not be called from inside `make`: the lock is held there.
    ///
    /// # Errors
    /// What `make` returns, or the folder cannot be written. Nothing is left under the entry's name
    /// then.
    pub fn ensure(
        &self,
        key: &str,
        note: Note<'_>,
        make: impl FnOnce(&Path, Note<'_>) -> Result<()>,
    ) -> Result<PathBuf> {
        if let Some(path) = self.get(key) {
            return Ok(path);
        }
        let _lock = self.lock(note)?;
        if let Some(path) = self.get(key) {
            return Ok(path);
        }
        self.sweep()?;
        // A set-up that was killed may have left a child that still writes: it must not write here.
        let staging = self
            .root
            .join(format!("{STAGING}{key}-{}", std::process::id()));
        fs::create_dir(&staging).with_context(|| format!("cannot create {}", staging.display()))?;
        if let Err(error) = make(&staging, note) {
            // The next set-up sweeps what cannot be removed now; the cause is what matters here.
            let _ = fs::remove_dir_all(&staging);
            return Err(error);
        }
        let path = self.path(key);
        fs::rename(&staging, &path).with_context(|| format!("cannot put {key} into place"))?;
        Ok(path)
    }

    /// Waits for the lock; it is held until the file is dropped, and given back by the kernel if
    /// this process dies.
    fn lock(&self, note: Note<'_>) -> Result<File> {
        let path = self.root.join("lock");
        let file =
            File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if file.try_lock().is_err() {
            note("waiting for another set-up that is running");
            file.lock().context("cannot lock the cache")?;
        }
        Ok(file)
    }

    /// Removes the staging folders of set-ups that were killed. Only called with the lock held, so
    /// no running set-up uses them.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                // The next one sweeps a folder that cannot be removed yet, since another process
                // still writes there.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }
}

const STAGING: &str = ".staging-";

/// A short hash of `parts` for an entry's key: 64-bit FNV-1a over each part and its length.
#[must_use]
pub fn key_hash(parts: &[&[u8]]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for &byte in part.iter().chain(&length) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("c")).unwrap();
        (dir, cache)
    }

    #[test]
    fn a_failed_entry_leaves_nothing_and_is_made_again() {
        let (_dir, cache) = cache();
        let failed = cache.ensure("k-1", &mut |_| {}, |dir, _| {
            fs::write(dir.join("half"), "x")?;
            bail!("the network went away")
        });
        assert!(failed.unwrap_err().to_string().contains("network"));
        assert_eq!(cache.get("k-1"), None);
        let path = cache
            .ensure("k-1", &mut |_| {}, |dir, _| {
                Ok(fs::write(dir.join("whole"), "x")?)
            })
            .unwrap();
        assert!(path.join("whole").exists() && !path.join("half").exists());
    }

    #[test]
    fn what_a_killed_set_up_left_is_swept() {
        let (dir, cache) = cache();
        let left = dir.path().join("c/.staging-k-1");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half"), "x").unwrap();
        let path = cache.ensure("k-1", &mut |_| {}, |_, _| Ok(())).unwrap();
        assert!(!left.exists() && !path.join("half").exists());
    }

    #[test]
    fn concurrent_set_ups_make_an_entry_once() {
        let (_dir, cache) = cache();
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cache
                        .ensure("k-1", &mut |_| {}, |dir, _| {
                            made.fetch_add(1, Ordering::Relaxed);
                            Ok(fs::write(dir.join("whole"), "x")?)
                        })
                        .unwrap()
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_hash_tells_apart_how_parts_are_split() {
        assert_ne!(key_hash(&[b"ab", b"c"]), key_hash(&[b"a", b"bc"]));
        assert_eq!(key_hash(&[b"ab", b"c"]), key_hash(&[b"ab", b"c"]));
    }
}
