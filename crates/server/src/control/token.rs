//! The token that requests over TCP need. Permission to read its file is permission to control the
//! server.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, ensure};
use subtle::ConstantTimeEq;

/// Random bytes of a generated token, which has two digits for each.
const RANDOM_LEN: usize = 32;
/// Characters of a token.
const LEN: std::ops::RangeInclusive<usize> = 32..=512;

/// The secret of a request.
#[derive(Clone)]
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads the token from a file that no other user can read, or creates both.
    pub(super) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        match File::open(path) {
            Ok(file) => Token::read(file).with_context(|| format!("the token's file {shown}")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Token::make(path).with_context(|| format!("cannot create the token's file {shown}"))
            }
            Err(error) => {
                Err(error).with_context(|| format!("cannot read the token's file {shown}"))
            }
        }
    }

    fn read(file: File) -> anyhow::Result<Self> {
        let metadata = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        ensure!(metadata.is_file(), "is no file");
        ensure!(
            metadata.uid() == own || metadata.uid() == 0,
            "is owned by user {}; its owner must be this program's user, or root",
            metadata.uid()
        );
        ensure!(
            metadata.mode() & 0o077 == 0,
            "is readable by others: run chmod 600 on it, and write another token, as this one may be known"
        );
        let mut text = String::new();
        file.take(*LEN.end() as u64 + 2).read_to_string(&mut text)?;
        let text = text.trim();
        ensure!(
            LEN.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()),
            "has no token: write {} to {} characters without blanks, or remove the file to have one created",
            LEN.start(),
            LEN.end()
        );
        Ok(Token(text.to_owned()))
    }

    /// A new random token.
    pub(super) fn random() -> anyhow::Result<Self> {
        let mut random = [0; RANDOM_LEN];
        let mut filled = 0;
        while filled < RANDOM_LEN {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut random[filled..], flags)?;
        }
        Ok(Token(
            random.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// The token as text.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    fn make(path: &Path) -> anyhow::Result<Self> {
        let made = Token::random()?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // created with mode 0600, and renamed once complete
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{}", made.0)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        File::open(folder)?.sync_all()?;
        Ok(made)
    }

    /// Whether a header `Authorization` has the token (RFC 6750, 2.1). The time this takes reveals
    /// only the token's length.
    pub(super) fn admits(&self, authorization: Option<&str>) -> bool {
        let Some((scheme, token)) = authorization.and_then(|text| text.split_once(' ')) else {
            return false;
        };
        let same: bool = token.trim().as_bytes().ct_eq(self.0.as_bytes()).into();
        scheme.eq_ignore_ascii_case("bearer") && same
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/token");
        let made = Token::of_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(made.0.len(), 64);
        assert_eq!(Token::of_file(&path).unwrap().0, made.0);
        let other = Token::of_file(&dir.path().join("other")).unwrap();
        assert_ne!(other.0, made.0);
        assert_eq!(format!("{made:?}"), "Token");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = format!("{:#}", Token::of_file(&path).unwrap_err());
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "short", "0123456789 0123456789 0123456789 0123456789"] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", Token::of_file(&path).unwrap_err());
            assert!(error.contains("has no token"), "{error}");
        }
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        let token = Token("0123456789abcdef0123456789abcdef".into());
        for right in [
            "Bearer 0123456789abcdef0123456789abcdef",
            "bearer 0123456789abcdef0123456789abcdef ",
        ] {
            assert!(token.admits(Some(right)), "{right}");
        }
        for wrong in [
            "Bearer 0123456789abcdef0123456789abcdee",
            "Bearer 0123456789abcdef0123456789abcde",
            "Bearer 0123456789abcdef0123456789abcdef0",
            "Basic 0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdef",
            "Bearer ",
            "Bearer",
            "",
        ] {
            assert!(!token.admits(Some(wrong)), "{wrong}");
        }
        assert!(!token.admits(None));
    }
}
