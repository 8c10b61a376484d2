//! QEMU: the options that give a guest one of our drives, and whether the QEMU that is installed
//! knows them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

use serde::Serialize;

/// The first QEMU with the device `vfio-user-pci`.
pub const NEEDED: Version = Version {
    major: 10,
    minor: 1,
};

/// A version of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The device's options, as `-device` takes them in JSON; in the order they are read best.
#[derive(Debug, Serialize)]
struct Device<'a> {
    driver: &'static str,
    id: String,
    socket: Socket<'a>,
    /// How long QEMU waits for a reply, in milliseconds.
    #[serde(rename = "x-msg-timeout", skip_serializing_if = "Option::is_none")]
    timeout: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Socket<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    path: &'a str,
}

/// Milliseconds that a QEMU should wait for replies of a server that survives: the storage of a
/// dead process may hang before the next one replies. QEMU's own default is 5 s, after which a
/// guest takes its drive for gone.
const SURVIVING_TIMEOUT: u32 = 30_000;

/// The options for a guest with one drive: its memory as a memfd that the server can map, and the
/// device. `survives`: another process of the server replaces one that dies.
pub fn options(name: &str, socket: &str, memory_bytes: u64, survives: bool) -> Vec<[String; 2]> {
    let device = Device {
        driver: "vfio-user-pci",
        id: format!("nvmirage-{name}"),
        socket: Socket {
            kind: "unix",
            path: socket,
        },
        timeout: survives.then_some(SURVIVING_TIMEOUT),
    };
    let device = serde_json::to_string(&device).expect("strings have a JSON form");
    let mut options = shared_memory(memory_bytes);
    options.push(["-device".into(), device]);
    options
}

/// The options for a guest whose memory another process can map.
pub(crate) fn shared_memory(memory_bytes: u64) -> Vec<[String; 2]> {
    let mib = memory_bytes >> 20;
    vec![
        ["-m".into(), format!("{mib}M")],
        [
            "-object".into(),
            format!("memory-backend-memfd,id=mem,size={mib}M,share=on"),
        ],
        ["-machine".into(), "q35,memory-backend=mem".into()],
    ]
}

/// Options in one line of a shell.
pub fn in_one_line(options: &[[String; 2]]) -> String {
    let options = options
        .iter()
        .map(|[option, value]| format!("{option} {}", shell_quoted(value)));
    options.collect::<Vec<_>>().join(" ")
}

/// A value in an option of QEMU, in which commas are doubled.
pub(crate) fn in_option(value: &str) -> String {
    value.replace(',', ",,")
}

/// `word` as a POSIX shell reads it back.
pub fn shell_quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The name of QEMU's program for this machine.
pub fn program_name() -> String {
    format!("qemu-system-{}", std::env::consts::ARCH)
}

/// The first program `name` on the `PATH`.
pub fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Asks a QEMU for its version; `None` where the answer is not understood.
pub fn version_of(program: &Path) -> io::Result<Option<Version>> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()?;
    Ok(parse_version(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads "QEMU emulator version 7.2.17 (Debian …)".
fn parse_version(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version {
        major: numbers.next()?.parse().ok()?,
        minor: numbers.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let version = |text| parse_version(text).map(|v| (v.major, v.minor));
        assert_eq!(
            version("QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7+deb12u16)\nCopyright (c)"),
            Some((7, 2))
        );
        assert_eq!(version("QEMU emulator version 10.1.0\n"), Some((10, 1)));
        assert_eq!(version("QEMU emulator version 11.1\n"), Some((11, 1)));
        assert_eq!(version("QEMU emulator version 10.1-rc2"), Some((10, 1)));
        assert_eq!(version("QEMU emulator version ten"), None);
        assert_eq!(version(""), None);
        let of = |major, minor| Version { major, minor };
        assert!(of(7, 2) < NEEDED && of(10, 0) < NEEDED);
        assert!(of(10, 1) >= NEEDED && of(11, 0) >= NEEDED);
    }

    #[test]
    fn words_read_back_from_a_shell() {
        for word in [
            "plain-1.2/x",
            "",
            "a b",
            "it's",
            "{\"a\":\"b\"}",
            "$HOME",
            "a\nb",
            "*",
        ] {
            let output = Command::new("sh")
                .args(["-c", &format!("printf %s {}", shell_quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(shell_quoted("size=4096M,share=on"), "size=4096M,share=on");
    }

    #[test]
    fn options_share_the_memory_and_name_the_socket() {
        let options = options("vm1", "/run/a \"b\".sock", 4 << 30, false);
        let value = |name: &str| options.iter().find(|o| o[0] == name).unwrap()[1].clone();
        assert_eq!(value("-m"), "4096M");
        assert_eq!(
            value("-object"),
            "memory-backend-memfd,id=mem,size=4096M,share=on"
        );
        let device: serde_json::Value = serde_json::from_str(&value("-device")).unwrap();
        assert_eq!(device["driver"], "vfio-user-pci");
        assert_eq!(device["socket"]["type"], "unix");
        assert_eq!(device["socket"]["path"], "/run/a \"b\".sock");
    }

    #[test]
    fn programs_are_found_in_the_order_of_the_path() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([a.path(), b.path()]).unwrap();
        assert_eq!(on_path("q", &path), None);
        std::fs::write(b.path().join("q"), "").unwrap();
        assert_eq!(on_path("q", &path), Some(b.path().join("q")));
        std::fs::write(a.path().join("q"), "").unwrap();
        assert_eq!(on_path("q", &path), Some(a.path().join("q")));
    }
}
