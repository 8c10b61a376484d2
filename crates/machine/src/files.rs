//! Reading of the text files that a configuration names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a file as text; it may be a pipe.
///
/// # Errors
/// The system's; the file has more than `max` bytes, or is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {max} bytes"),
        ));
    }
    Ok(text)
}

/// Whether `path` is a regular file, or does not exist yet.
#[must_use]
pub fn may_be_regular(path: &Path) -> bool {
    path.metadata()
        .map_or_else(|_| true, |found| found.file_type().is_file())
}

/// Name of a process, as `ps -o comm` shows it; `None` where it cannot be read.
#[must_use]
pub fn command_of(process: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_longest_size_is_read_and_a_longer_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        let error = read_text(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is larger than 3 bytes");
        let error = read_text(&dir.path().join("none"), 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn folders_and_devices_are_not_regular() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!may_be_regular(dir.path()));
        assert!(!may_be_regular(Path::new("/dev/null")));
        assert!(may_be_regular(&dir.path().join("none")));
    }
}
