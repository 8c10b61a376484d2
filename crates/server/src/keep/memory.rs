//! Persistence of a medium in memory over a clean stop: the file is written at the stop, and
//! consumed at the next start.
//!
//! From the start on, the file says that the medium is in use, and it still says so after a crash.
//! The data is then only in memory, and lost with it: an old copy of a part of it would be worse
//! than none.
//!
//! Format, in little-endian numbers of 8 bytes: `nvmimage` in ASCII; the version (2); the size of
//! the medium in bytes; 1 if data follows; and four numbers that describe its records
//! ([`Medium::record_shape`]). Then each part of 64 KiB that is not all zero, as its number and its
//! bytes, ended by a number of all ones. Then the medium's records, which are its zones or its keys
//! and values: for each, its length times 256 plus its kind, and its bytes, padded with zeros;
//! ended by a number of all ones. Then a checksum: FNV-1a of 64 bits over the 8-byte words of all
//! parts and records.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use media::{Medium, RECORD_MAX};

use crate::keep::owned::{self, Replaced};

/// Configuration key of the file.
const KEY: &str = "state";

const MAGIC: u64 = u64::from_le_bytes(*b"nvmimage");
const VERSION: u64 = 2;
/// State of the medium when the file was written.
const IN_USE: u64 = 0;
const STOPPED: u64 = 1;
const HEAD: u64 = 64;
const PART: usize = 64 << 10;
const END: u64 = u64::MAX;

/// State of the file at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No file.
    Nothing,
    /// Data, which is now in memory.
    Bytes,
    /// The medium was in use, and its server did not stop cleanly.
    Crash,
}

/// The file of a medium of this process. Until [`Image::use_up`] it is as it was found.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    /// Locked.
    file: File,
}

impl Image {
    /// Fills a new medium in memory with the file's data, if any.
    ///
    /// # Errors
    /// The file is locked by another process, cannot be read, has another format, version or size,
    /// or is damaged.
    pub(crate) fn load(path: &Path, medium: &Medium) -> anyhow::Result<(Self, Found)> {
        let image = Image::lock(path)?;
        let found = read(&image.file, medium).with_context(|| {
            format!(
                "cannot load {}: remove that file to start with an empty medium",
                image.path.display()
            )
        })?;
        Ok((image, found))
    }

    /// The file of a medium that has the contents that another process left in memory: whatever the
    /// file says, the medium has the same or newer ones.
    ///
    /// # Errors
    /// The file is locked by another process.
    pub(crate) fn lock(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let file = owned::open(&path, true, KEY)?.context("it was made")?;
        Ok(Image { path, file })
    }

    /// Removes the data from the file: from now on the medium is in use.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn use_up(&self, medium: &Medium) -> anyhow::Result<()> {
        let in_use = || {
            self.file.write_all_at(&head(medium, IN_USE), 0)?;
            self.file.set_len(HEAD)?;
            self.file.sync_all()
        };
        in_use().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the medium's data. No channel of the medium is open.
    ///
    /// # Errors
    /// The system's; the file then says that the medium is in use.
    pub(crate) fn keep(&mut self, medium: &Medium) -> anyhow::Result<()> {
        let Replaced { file, durable } =
            owned::replace(&self.path, KEY, |file| write(file, medium))?;
        self.file = file;
        durable
    }
}

fn head(medium: &Medium, what: u64) -> [u8; HEAD as usize] {
    let mut head = [0; HEAD as usize];
    let numbers = [MAGIC, VERSION, medium.size(), what];
    let numbers = numbers.into_iter().chain(medium.record_shape());
    for (to, number) in head.chunks_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    head
}

/// Writes, and computes the checksum.
struct Out<'f> {
    to: BufWriter<&'f File>,
    sum: Sum,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.add(bytes);
        self.to.write_all(bytes)
    }
}

fn write(file: &File, medium: &Medium) -> io::Result<()> {
    let mut out = Out {
        to: BufWriter::with_capacity(1 << 20, file),
        sum: Sum::default(),
    };
    out.to.write_all(&head(medium, STOPPED))?;
    let mut part = vec![0; PART];
    let parts = medium.memory().map_or(0, |store| parts_of(store.len()));
    for index in 0..parts {
        let bytes = part_of(&mut part, index, medium.size());
        if let Some(store) = medium.memory() {
            store.read_bytes(index * PART as u64, bytes);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            out.put(&index.to_le_bytes())?;
            out.put(bytes)?;
        }
    }
    out.to.write_all(&END.to_le_bytes())?;
    medium.records(&mut |kind, record| {
        out.put(&((record.len() as u64) << 8 | u64::from(kind)).to_le_bytes())?;
        let (words, rest) = record.as_chunks::<8>();
        out.put(words.as_flattened())?;
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        out.put(if rest.is_empty() { &[] } else { &last })
    })?;
    out.to.write_all(&END.to_le_bytes())?;
    let sum = out.sum.0;
    out.to.write_all(&sum.to_le_bytes())?;
    out.to.flush()
}

const CUT: &str = "it is damaged (truncated)";

fn read(file: &File, medium: &Medium) -> anyhow::Result<Found> {
    if file.metadata()?.len() == 0 {
        return Ok(Found::Nothing);
    }
    let mut from = BufReader::with_capacity(1 << 20, file);
    if number(&mut from).ok() != Some(MAGIC) {
        bail!("it is not the saved contents of a medium in memory");
    }
    let version = number(&mut from).context(CUT)?;
    if version != VERSION {
        bail!(
            "unsupported version {version}; this program reads version {VERSION}: use the program that wrote it"
        );
    }
    let size = number(&mut from).context(CUT)?;
    if size != medium.size() {
        bail!(
            "it is from a medium of {size} bytes, and this one has {}: correct the size",
            medium.size()
        );
    }
    let what = number(&mut from).context(CUT)?;
    let mut shape = [0; 4];
    for word in &mut shape {
        *word = number(&mut from).context(CUT)?;
    }
    if shape != medium.record_shape() {
        bail!(
            "it is from a medium of another kind, or with other zones, another dialect or another number of keys: correct the configuration"
        );
    }
    match what {
        IN_USE => return Ok(Found::Crash),
        STOPPED => {}
        _ => bail!("it is damaged"),
    }
    let mut sum = Sum::default();
    read_parts(&mut from, medium, &mut sum)?;
    read_records(&mut from, medium, &mut sum)?;
    if number(&mut from).context(CUT)? != sum.0 || from.read(&mut [0])? != 0 {
        bail!("it is damaged (its checksum does not match)");
    }
    Ok(Found::Bytes)
}

fn read_parts(from: &mut impl Read, medium: &Medium, sum: &mut Sum) -> anyhow::Result<()> {
    let parts = medium.memory().map_or(0, |store| parts_of(store.len()));
    let mut part = vec![0; PART];
    let mut next = 0;
    loop {
        let index = number(from).context(CUT)?;
        if index == END {
            return Ok(());
        }
        if index < next || index >= parts {
            bail!("it is damaged (a part has an invalid location)");
        }
        next = index + 1;
        let bytes = part_of(&mut part, index, medium.size());
        from.read_exact(bytes).context(CUT)?;
        sum.add(&index.to_le_bytes());
        sum.add(bytes);
        if let Some(store) = medium.memory() {
            store.write_bytes(index * PART as u64, bytes);
        }
    }
}

fn read_records(from: &mut impl Read, medium: &Medium, sum: &mut Sum) -> anyhow::Result<()> {
    let mut record = Vec::new();
    loop {
        let head = number(from).context(CUT)?;
        if head == END {
            return Ok(());
        }
        let len = usize::try_from(head >> 8).unwrap_or(usize::MAX);
        if len > RECORD_MAX {
            bail!("it is damaged (a record is too long)");
        }
        record.resize(len.next_multiple_of(8), 0);
        from.read_exact(&mut record).context(CUT)?;
        sum.add(&head.to_le_bytes());
        sum.add(&record);
        medium.take_record(head as u8, &record[..len])?;
    }
}

/// Number of parts of a store of `len` bytes.
fn parts_of(len: u64) -> u64 {
    len.div_ceil(PART as u64)
}

/// The slice of a buffer for a part of a medium; the last part may be shorter.
fn part_of(buffer: &mut [u8], index: u64, size: u64) -> &mut [u8] {
    let left = size - index * PART as u64;
    &mut buffer[..usize::try_from(left).map_or(PART, |left| left.min(PART))]
}

fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// FNV-1a over words of 8 bytes; sizes are multiples of 512.
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Sum(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        self.0 = words.iter().fold(self.0, |sum, word| {
            (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use media::{Dialect, MediumKind, MediumSpec};

    use super::*;

    const SIZE: u64 = 5 * PART as u64 + 512;

    struct Rig {
        dir: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Rig { dir }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("disk.state")
        }

        fn take(&self) -> Result<(Image, Arc<Medium>, Found), String> {
            self.take_as(MediumKind::Ram { size: SIZE })
        }

        fn take_as(&self, kind: MediumKind) -> Result<(Image, Arc<Medium>, Found), String> {
            let medium = Medium::open(&MediumSpec { kind }).unwrap();
            let taken = Image::load(&self.path(), &medium).and_then(|(image, found)| {
                image.use_up(&medium)?;
                Ok((image, found))
            });
            match taken {
                Ok((image, found)) => Ok((image, medium, found)),
                Err(error) => Err(format!("{error:#}")),
            }
        }

        /// Writes a file with some data.
        fn keep(&self) -> Vec<u8> {
            let (mut image, medium, _) = self.take().unwrap();
            let store = medium.memory().unwrap();
            store.write_bytes(7, &[1; 3]);
            store.write_bytes(SIZE - 1, &[2]);
            image.keep(&medium).unwrap();
            fs::read(self.path()).unwrap()
        }
    }

    #[test]
    fn what_was_kept_is_there_once() {
        let rig = Rig::new();
        let (mut image, medium, found) = rig.take().unwrap();
        let store = medium.memory().unwrap();
        assert_eq!(found, Found::Nothing);
        let error = rig.take().unwrap_err();
        assert!(error.contains("in use by another"), "{error}");
        store.write_bytes(7, &[1; 3]);
        store.write_bytes(SIZE - 1, &[2]);
        image.keep(&medium).unwrap();
        assert!(rig.take().is_err(), "it is still ours");
        drop(image);

        let (image, again, found) = rig.take().unwrap();
        assert_eq!(found, Found::Bytes);
        let bytes = |medium: &Medium| {
            let mut bytes = vec![9; SIZE as usize];
            medium.memory().unwrap().read_bytes(0, &mut bytes);
            bytes
        };
        assert!(bytes(&again) == bytes(&medium));
        // like a crash at this point
        drop(image);
        let (mut image, empty, found) = rig.take().unwrap();
        assert_eq!(found, Found::Crash);
        assert!(bytes(&empty).iter().all(|byte| *byte == 0));
        image.keep(&empty).unwrap();
        drop(image);
        assert_eq!(rig.take().unwrap().2, Found::Bytes);
        assert_eq!(fs::read_dir(rig.dir.path()).unwrap().count(), 1);
    }

    /// A process that dies before it uses the file up leaves it whole.
    #[test]
    fn what_was_only_loaded_is_still_there() {
        let rig = Rig::new();
        let whole = rig.keep();
        let kind = MediumKind::Ram { size: SIZE };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        drop(Image::load(&rig.path(), &medium).unwrap());
        drop(Image::lock(&rig.path()).unwrap());
        assert!(fs::read(rig.path()).unwrap() == whole);
        assert_eq!(rig.take().unwrap().2, Found::Bytes);
        assert_eq!(rig.take().unwrap().2, Found::Crash);
    }

    /// A block device has no length of its own, and would look like a new file.
    #[test]
    fn only_a_regular_file_is_taken() {
        let medium = Medium::open(&MediumSpec {
            kind: MediumKind::Ram { size: SIZE },
        })
        .unwrap();
        let error = Image::load(Path::new("/dev/null"), &medium).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn what_is_not_whole_is_refused_and_left_alone() {
        let rig = Rig::new();
        let whole = rig.keep();
        let parts = 2 * 8 + PART + 512;
        assert_eq!(
            whole.len(),
            HEAD as usize + parts + 24,
            "two parts, no record, and the end"
        );
        let changed = |at: usize, to: u8| {
            let mut bytes = whole.clone();
            bytes[at] = to;
            bytes
        };
        let cut = |len: usize| whole[..len].to_vec();
        for (bytes, says) in [
            (
                b"my notes, which are longer than a number".to_vec(),
                "not the saved contents",
            ),
            (
                changed(8, 1),
                "unsupported version 1; this program reads version 2",
            ),
            (changed(32, 1), "of another kind"),
            (changed(17, 0xff), "correct the size"),
            (changed(24, 5), "damaged"),
            (changed(HEAD as usize, 9), "an invalid location"),
            (changed(HEAD as usize + 8 + 20_000, 1), "checksum"),
            (
                changed(whole.len() - 1, whole[whole.len() - 1] ^ 1),
                "checksum",
            ),
            ([&whole[..], b"x"].concat(), "checksum"),
            (cut(4), "not the saved contents"),
            (cut(20), "truncated"),
            (cut(HEAD as usize + 100), "truncated"),
            (cut(whole.len() - 1), "truncated"),
        ] {
            fs::write(rig.path(), &bytes).unwrap();
            let error = rig.take().unwrap_err();
            assert!(
                error.contains(says) && error.contains("disk.state"),
                "{error}"
            );
            assert!(fs::read(rig.path()).unwrap() == bytes, "{error}");
        }
        fs::write(rig.path(), &whole).unwrap();
        assert_eq!(rig.take().unwrap().2, Found::Bytes);
    }

    /// Pairs that a medium has loaded are the ones it returns; an invalid record is refused.
    #[test]
    fn pairs_are_kept_too() {
        let rig = Rig::new();
        let pairs = |keys| MediumKind::KeyValue {
            path: None,
            size: SIZE,
            keys: Some(keys),
            dialect: Dialect::Nvme,
        };
        let put = |key: &[u8], value: &[u8]| [&[key.len() as u8], key, value].concat();
        let all = [
            put(b"a", b"1"),
            put(b"colour", &[7; 3000]),
            put(b"empty", b""),
        ];
        let (mut image, medium, _) = rig.take_as(pairs(9)).unwrap();
        for record in &all {
            medium.take_record(1, record).unwrap();
        }
        assert!(medium.take_record(1, &[200, 1]).is_err());
        image.keep(&medium).unwrap();
        drop(image);
        let error = rig.take_as(pairs(8)).unwrap_err();
        assert!(error.contains("number of keys"), "{error}");
        let (_image, again, found) = rig.take_as(pairs(9)).unwrap();
        assert_eq!(found, Found::Bytes);
        let mut told = Vec::new();
        let tell = &mut |kind, record: &[u8]| {
            told.push((kind, record.to_vec()));
            Ok(())
        };
        again.records(tell).unwrap();
        assert!(told == all.map(|record| (1, record)));
    }
}
