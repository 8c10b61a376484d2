//! Identities that a configuration omits: derived once, and persistent.
//!
//! A random seed is written once into the state folder. Serial number, NGUID, EUI-64 and subsystem
//! NQN are SHA-256 digests of the seed, the kind of identity, and the object's name. The same name
//! therefore has the same identity at every start, and two machines never have the same one.

use std::fs;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::config::Config;
use sha2::{Digest, Sha256};

/// Name of the file in the state folder.
const FILE_NAME: &str = "identity";
/// First line of the file, with the version of the format.
const FORMAT: &str = "nvmirage-identity 1";
/// Bytes of the seed.
const SEED_LEN: usize = 32;

/// The source of derived identities.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    seed: [u8; SEED_LEN],
    is_saved: bool,
}

/// `$XDG_STATE_HOME/nvmirage`, or `~/.local/state/nvmirage` (XDG Base Directory Specification).
pub fn default_state_dir() -> anyhow::Result<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("nvmirage"));
    }
    match absolute("HOME") {
        Some(home) => Ok(home.join(".local/state/nvmirage")),
        None => bail!(
            "no state folder: set state_dir in the configuration, --state-dir on the command line, or the environment variable XDG_STATE_HOME"
        ),
    }
}

/// The name that identities and saved state of a subsystem or namespace depend on: its own name,
/// and for a configuration built from a command line also a digest of its short form.
pub(crate) fn lasting_name(config: &Config, name: &str) -> String {
    match &config.short_form {
        None => name.to_owned(),
        Some(path) => name_apart(name, path),
    }
}

/// A name that is unique for this name and path: the name, and 16 hexadecimal digits of the path's
/// SHA-256.
pub(crate) fn name_apart(name: &str, path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    let hex: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{name}-{hex}")
}

/// Next step where the state folder cannot be used.
const OTHER_FOLDER: &str =
    "set state_dir, or --state-dir on the command line, to a writable folder";

impl Identities {
    /// Reads the seed from `state_dir`, or creates it.
    pub(crate) fn open(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join(FILE_NAME);
        let shown = path.display();
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).with_context(|| {
                format!("{shown} cannot be used; restore it, or remove it to get new identities")
            }),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
                Self::create(state_dir, &path)
                    .with_context(|| format!("cannot save identities in {shown}: {OTHER_FOLDER}"))
            }
            Err(error) => {
                Err(error).with_context(|| format!("cannot read {shown}: {OTHER_FOLDER}"))
            }
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        match lines.next() {
            Some(FORMAT) => {}
            Some(other) => bail!("its first line is `{other}`, not `{FORMAT}`"),
            None => bail!("it is empty"),
        }
        let hex = lines.next().unwrap_or_default();
        let mut seed = [0; SEED_LEN];
        if hex.len() != 2 * SEED_LEN || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("its second line is not {} hexadecimal digits", 2 * SEED_LEN);
        }
        for (byte, digits) in seed.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).expect("hexadecimal digits are ASCII");
            *byte = u8::from_str_radix(digits, 16).expect("two hexadecimal digits are a byte");
        }
        Ok(Identities {
            seed,
            is_saved: true,
        })
    }

    /// Writes a new seed atomically. If another process was first, uses that one's seed.
    fn create(state_dir: &Path, path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let mut seed = [0; SEED_LEN];
        fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let temporary = state_dir.join(format!("{FILE_NAME}.{}", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{FORMAT}\n{hex}")?;
        file.sync_all()?;
        // a hard link fails where the name exists: the first writer wins
        let linked = fs::hard_link(&temporary, path);
        fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => {
                fs::File::open(state_dir)?.sync_all()?;
                Ok(Identities {
                    seed,
                    is_saved: true,
                })
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::parse(&fs::read_to_string(path)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A seed that is not saved.
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        let mut seed = [0; SEED_LEN];
        fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Identities {
            seed,
            is_saved: false,
        })
    }

    /// Whether the next start derives the same identities.
    pub(crate) fn are_saved(&self) -> bool {
        self.is_saved
    }

    fn derive<const N: usize>(&self, kind: &str, name: &str) -> [u8; N] {
        let digest = Sha256::new()
            .chain_update(self.seed)
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        let mut out = [0; N];
        out.copy_from_slice(&digest[..N]);
        out
    }

    /// A serial number: `NVM` and 16 hexadecimal digits.
    pub(crate) fn serial(&self, subsystem: &str) -> String {
        let value = u64::from_be_bytes(self.derive("serial", subsystem));
        format!("NVM{value:016X}")
    }

    /// An NQN with a UUID (Base 2.1, 4.7): `nqn.2014-08.org.nvmexpress:uuid:…`.
    pub(crate) fn subnqn(&self, subsystem: &str) -> String {
        let mut uuid: [u8; 16] = self.derive("subnqn", subsystem);
        // version 8 (custom), variant 10b (RFC 9562, 5.8)
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "nqn.2014-08.org.nvmexpress:uuid:{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// The seed of identifiers of namespaces that hosts create.
    pub(crate) fn subsystem_seed(&self, subsystem: &str) -> [u8; 16] {
        self.derive("subsystem", subsystem)
    }

    /// A namespace's NGUID, 16 bytes, and EUI-64, 8 bytes. Both have the locally administered bit
    /// of an OUI set, because nvmirage owns none (IEEE 802, 8.4).
    pub(crate) fn namespace(&self, namespace: &str) -> ([u8; 16], [u8; 8]) {
        let mut nguid: [u8; 16] = self.derive("nguid", namespace);
        let mut eui64: [u8; 8] = self.derive("eui64", namespace);
        // an NGUID is an 8-byte vendor part, then an OUI and 5 bytes (Base 2.1, 4.7.1.4)
        nguid[8] = nguid[8] & 0xfc | 0x02;
        eui64[0] = eui64[0] & 0xfc | 0x02;
        (nguid, eui64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let first = Identities::open(&state).unwrap();
        let second = Identities::open(&state).unwrap();
        assert_eq!(first.serial("vm1"), second.serial("vm1"));
        assert_eq!(first.subnqn("vm1"), second.subnqn("vm1"));
        assert_eq!(first.namespace("root"), second.namespace("root"));
        assert_ne!(first.serial("vm1"), first.serial("vm2"));
        let elsewhere = Identities::open(&dir.path().join("c")).unwrap();
        assert_ne!(first.serial("vm1"), elsewhere.serial("vm1"));
    }

    #[test]
    fn an_unusable_file_is_an_error_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        for text in [
            "",
            "nvmirage-identity 2\n00\n",
            "nvmirage-identity 1\nxyz\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = Identities::open(dir.path()).unwrap_err();
            assert!(format!("{error:#}").contains("remove it"), "{error:#}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn serial_and_nqn_have_the_form_the_specification_asks_for() {
        let ids = Identities {
            seed: [7; SEED_LEN],
            is_saved: true,
        };
        let serial = ids.serial("a");
        assert!(serial.len() <= 20 && serial.is_ascii());
        let nqn = ids.subnqn("a");
        assert_eq!(nqn.len(), "nqn.2014-08.org.nvmexpress:uuid:".len() + 36);
        let (nguid, eui64) = ids.namespace("a");
        assert_eq!((nguid[8] & 3, eui64[0] & 3), (2, 2));
    }
}
