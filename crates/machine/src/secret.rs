//! Reading of files with secrets, which only their owner may read.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use zeroize::Zeroizing;

/// Bytes of a file with one secret at most.
const MAX_LEN: usize = 1024;
/// Beginning of a path that names a systemd credential.
const CREDENTIAL: &str = "credential:";

/// Reads a file with a secret: a regular file of up to 1 KiB that only its owner may read, or the
/// systemd credential of a path `credential:NAME`. Its bytes are cleared when it is dropped.
///
/// # Errors
/// It is no such file, or cannot be read. No error shows what is in it.
pub fn read(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    read_up_to(path, MAX_LEN)
}

/// As [`read`], for a file of up to `max` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_up_to(path: &Path, max: usize) -> anyhow::Result<Zeroizing<String>> {
    read_with(path, max, std::env::var_os("CREDENTIALS_DIRECTORY"))
}

fn read_with(
    path: &Path,
    max: usize,
    credentials: Option<OsString>,
) -> anyhow::Result<Zeroizing<String>> {
    let shown = path.display();
    let name = path.to_str().and_then(|path| path.strip_prefix(CREDENTIAL));
    let is_credential = name.is_some();
    let path = match name {
        None => path.to_owned(),
        Some(name) => credential(name, credentials).with_context(|| format!("{shown}"))?,
    };
    // A pipe would keep the caller waiting.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(nonblock).open(&path);
    let file = file.with_context(|| format!("cannot open the secret {shown}"))?;
    let metadata = file.metadata()?;
    ensure!(
        metadata.is_file(),
        "{shown} is not a regular file: write the path of a file with the secret"
    );
    // systemd gives access to its credentials by the folder, and by ACLs, which the mode shows.
    ensure!(
        is_credential || metadata.mode() & 0o077 == 0,
        "other users may use {shown}: run chmod 600 on it, and make another secret, as this one may be known"
    );
    // Root's, as of a file that root has put there for the service.
    let owners = [0, rustix::process::geteuid().as_raw()];
    ensure!(
        is_credential || owners.contains(&metadata.uid()),
        "another user owns {shown}, and knows the secret: make another one in a file of your own"
    );
    let mut bytes = Zeroizing::new(Vec::with_capacity(max + 1));
    file.take(max as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read the secret {shown}"))?;
    ensure!(
        bytes.len() <= max,
        "{shown} has more than {max} bytes, and is no secret"
    );
    match str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => bail!("{shown} is not text, and is no secret"),
    }
}

fn credential(name: &str, folder: Option<OsString>) -> anyhow::Result<PathBuf> {
    ensure!(
        !name.is_empty() && !name.contains('/') && name != "." && name != "..",
        "write credential:NAME with the name of a credential"
    );
    let folder = folder.context(
        "there are no credentials: run the program by a systemd unit with LoadCredential= or LoadCredentialEncrypted=, or write the path of a file",
    )?;
    Ok(PathBuf::from(folder).join(name))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn error(path: &Path) -> String {
        format!("{:#}", read(path).unwrap_err())
    }

    #[test]
    fn only_a_private_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret\n").unwrap();
        for (mode, is_private) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o601, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), is_private, "{mode:o}");
            if !is_private {
                assert!(error(&path).contains("chmod 600"));
            }
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(*read(&path).unwrap(), "secret\n");
        std::fs::write(&path, [b'x'; 1024]).unwrap();
        assert!(read(&path).is_ok());
        std::fs::write(&path, [b'x'; 1025]).unwrap();
        assert!(error(&path).contains("more than 1024 bytes"));
        assert!(read_up_to(&path, 1025).is_ok());
        std::fs::write(&path, [0xff; 8]).unwrap();
        assert!(error(&path).contains("not text"));
        assert!(error(folder.path()).contains("not a regular file"));
        assert!(error(&folder.path().join("none")).contains("cannot open"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(error(&pipe).contains("not a regular file"));
    }

    #[test]
    fn credentials_are_those_of_the_unit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host-a");
        std::fs::write(&path, "secret").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o440)).unwrap();
        let of = |text: &str, folder: Option<&Path>| {
            let folder = folder.map(|folder| folder.as_os_str().to_owned());
            read_with(Path::new(text), MAX_LEN, folder).map(|secret| secret.to_string())
        };
        let there = Some(folder.path());
        assert_eq!(of("credential:host-a", there).unwrap(), "secret");
        for (text, folder) in [
            ("credential:host-a", None),
            ("credential:host-b", there),
            ("credential:", there),
            ("credential:..", there),
            ("credential:../host-a", there),
        ] {
            assert!(of(text, folder).is_err(), "{text}");
        }
    }
}
