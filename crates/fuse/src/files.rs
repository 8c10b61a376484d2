//! The files of a mount, one for each namespace, and how they follow changes of namespaces.
//!
//! Invariant: an inode number belongs to one namespace as long as the mount lives. If another
//! namespace, by its identifiers, takes over a namespace's number, it becomes another file, so a
//! program with the old file open never writes to the new namespace.

use std::collections::BTreeMap;

use driver::io::Namespace;

/// The inode of the folder.
pub(super) const ROOT: u64 = 1;

/// NGUID and EUI-64 of a namespace.
pub(super) type Identity = ([u8; 16], [u8; 8]);

/// A namespace as the drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) namespace: Namespace,
    pub(super) identity: Identity,
    /// The drive rejects writes to it (NSATTR).
    pub(super) read_only: bool,
}

/// A file.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) inode: u64,
    pub(super) found: Found,
}

impl File {
    pub(super) fn name(&self) -> String {
        format!("ns{}", self.found.namespace.nsid)
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.found.namespace.len()
    }
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Files {
    by_inode: BTreeMap<u64, File>,
    /// The last inode number assigned.
    last: u64,
}

/// Result of an update.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: Vec<File>,
    /// Files with a new size or block size.
    pub(super) changed: Vec<File>,
    pub(super) removed: Vec<File>,
}

impl Files {
    /// Updates the files to the drive's current namespaces.
    pub(super) fn update(&mut self, found: &[Found]) -> Changes {
        let mut changes = Changes::default();
        let is_same = |file: &File, found: &Found| {
            file.found.namespace.nsid == found.namespace.nsid
                && file.found.identity == found.identity
        };
        self.by_inode.retain(|_, file| {
            let stays = found.iter().any(|found| is_same(file, found));
            if !stays {
                changes.removed.push(*file);
            }
            stays
        });
        for found in found {
            if let Some(file) = self.by_inode.values_mut().find(|file| is_same(file, found)) {
                if file.found != *found {
                    file.found = *found;
                    changes.changed.push(*file);
                }
                continue;
            }
            self.last = self.last.max(ROOT) + 1;
            let file = File {
                inode: self.last,
                found: *found,
            };
            self.by_inode.insert(file.inode, file);
            changes.added.push(file);
        }
        changes
    }

    pub(super) fn get(&self, inode: u64) -> Option<File> {
        self.by_inode.get(&inode).copied()
    }

    pub(super) fn named(&self, name: &str) -> Option<File> {
        self.iter().find(|file| file.name() == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = File> {
        self.by_inode.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(nsid: u32, blocks: u64, id: u8) -> Found {
        Found {
            namespace: Namespace {
                nsid,
                blocks,
                block_len: 4096,
            },
            identity: ([id; 16], [id; 8]),
            read_only: false,
        }
    }

    #[test]
    fn files_follow_namespaces() {
        let mut files = Files::default();
        let changes = files.update(&[found(1, 10, 1), found(3, 20, 3)]);
        assert_eq!(changes.added.len(), 2);
        let one = files.named("ns1").unwrap();
        assert_eq!((one.len(), files.named("ns2").is_none()), (40_960, true));

        let changes = files.update(&[found(1, 11, 1)]);
        assert_eq!(changes.changed[0].len(), 45_056);
        assert_eq!(
            (changes.changed[0].inode, changes.removed[0].name()),
            (one.inode, "ns3".into())
        );
        assert!(changes.added.is_empty());
    }

    #[test]
    fn another_namespace_of_the_same_number_is_another_file() {
        let mut files = Files::default();
        files.update(&[found(1, 10, 1)]);
        let before = files.named("ns1").unwrap();
        let changes = files.update(&[found(1, 10, 2)]);
        assert_eq!((changes.added.len(), changes.removed.len()), (1, 1));
        assert!(files.get(before.inode).is_none());
        let after = files.named("ns1").unwrap();
        assert!(after.inode > before.inode && before.inode > ROOT);
    }
}
