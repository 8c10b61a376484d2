//! `cargo xtask package`: the Debian package, with the service, its socket, manual pages and
//! completions; the same files as a tarball, and the checksums of both.
//!
//! `dpkg-deb` makes it of a folder that has what `package/` says and what the program prints of
//! itself. What it depends on is read off the program, so that it is installed nowhere where it
//! would not start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use guest_rig::debian;

use crate::workspace::Workspace;

/// What lies in `package/`, and where it is installed.
const FILES: &[(&str, &str)] = &[
    (
        "nvmirage.service",
        "usr/lib/systemd/system/nvmirage.service",
    ),
    ("nvmirage.socket", "usr/lib/systemd/system/nvmirage.socket"),
    ("nvmirage.sysusers", "usr/lib/sysusers.d/nvmirage.conf"),
    ("nvmirage.toml", "etc/nvmirage/nvmirage.toml"),
    (
        "block-device.conf",
        "usr/share/doc/nvmirage/examples/block-device.conf",
    ),
    (
        "survive.conf",
        "usr/share/doc/nvmirage/examples/survive.conf",
    ),
    (
        "vfio-drive.conf",
        "usr/share/doc/nvmirage/examples/vfio-drive.conf",
    ),
    ("debian/copyright", "usr/share/doc/nvmirage/copyright"),
];
/// Files of the system's administrator, who is asked before they change.
const CONFFILES: &str = "/etc/nvmirage/nvmirage.toml\n";
/// Scripts of the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// What a completion is printed for, and where it is installed.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/nvmirage"),
    ("zsh", "usr/share/zsh/vendor-completions/_nvmirage"),
    ("fish", "usr/share/fish/vendor_completions.d/nvmirage.fish"),
];
const MANUAL: &str = "usr/share/man";
/// Stands in the dashboard's page, and in nothing else that a program has.
const DASHBOARD: &[u8] = b"<div id=\"app\"></div>";

/// Builds the program, where it is not up to date, and the package; its path.
///
/// # Errors
/// Something does not build, the program has no dashboard, or a program of Debian's or of the
/// compiler's is missing.
pub(crate) fn run(workspace: &Workspace) -> Result<PathBuf> {
    for (program, package) in [
        ("dpkg-deb", "dpkg"),
        ("strip", "binutils"),
        ("objdump", "binutils"),
    ] {
        ensure!(
            debian::on_path(program).is_some(),
            "no {program}: install the package {package}"
        );
    }
    done(&mut workspace.cargo(&["build", "--locked", "--release", "-p", "nvmirage"])?)?;
    let folder = workspace.target.join("package");
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let program = root.join("usr/bin/nvmirage");
    fs::create_dir_all(root.join("usr/bin"))?;
    done(
        Command::new("strip")
            .arg("-o")
            .args([&program, &workspace.program()]),
    )?;
    ensure!(
        has_dashboard(&fs::read(&program)?),
        "the program was built without its dashboard, so that there is no package of it: run `cargo xtask setup`, and `NVMIRAGE_WEB=1 \
         cargo build --release`, which says what is missing; NVMIRAGE_WEB=0 leaves it out"
    );
    for (from, to) in FILES {
        let content = fs::read(workspace.root.join("package").join(from))?;
        write(&root.join(to), &content, 0o644)?;
    }
    for (shell, to) in COMPLETIONS {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        write(&root.join(to), &script, 0o644)?;
    }
    manual(&program, &root)?;
    control(workspace, &root)?;
    let version = env!("CARGO_PKG_VERSION");
    let package = folder.join(format!("nvmirage_{version}_{}.deb", architecture()?));
    done(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([&root, &package]),
    )?;
    let archive = archive(&folder, &root)?;
    let sums = folder.join("SHA256SUMS");
    let names = [&package, &archive].map(|path| path.file_name().unwrap_or_default());
    let text = output(Command::new("sha256sum").args(names).current_dir(&folder))?;
    write(&sums, &text, 0o644)?;
    Ok(package)
}

/// The files of the package as a tarball, for systems without `dpkg`.
fn archive(folder: &Path, root: &Path) -> Result<PathBuf> {
    let name = format!(
        "nvmirage-{}-{}-linux.tar.gz",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let archive = folder.join(name);
    done(
        Command::new("tar")
            .args([
                "--create",
                "--gzip",
                "--sort=name",
                "--owner=0",
                "--group=0",
            ])
            .arg("--exclude=./DEBIAN")
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .args([root, Path::new(".")]),
    )?;
    Ok(archive)
}

/// The manual pages, compressed as Debian's policy has it (12.1).
fn manual(program: &Path, root: &Path) -> Result<()> {
    let folder = root.join(MANUAL);
    done(Command::new(program).args(["man", "--out"]).arg(&folder))?;
    let mut pages = Vec::new();
    for section in ["man1", "man5"] {
        for entry in fs::read_dir(folder.join(section))? {
            let path = entry?.path();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
            pages.push(path);
        }
    }
    let log = root.join("usr/share/doc/nvmirage/changelog");
    let changes = concat!(env!("CARGO_MANIFEST_DIR"), "/../CHANGELOG.md");
    write(&log, &fs::read(changes)?, 0o644)?;
    pages.push(log);
    done(Command::new("gzip").args(["-9", "--no-name"]).args(pages))
}

/// What `dpkg` reads of the package.
fn control(workspace: &Workspace, root: &Path) -> Result<()> {
    let mut bytes = 0;
    let mut sums = String::new();
    for file in files(root)? {
        bytes += fs::metadata(&file)?.len();
        let inside = file.strip_prefix(root)?.display().to_string();
        if !inside.starts_with("etc/") {
            let sum = output(Command::new("md5sum").arg(&file))?;
            let sum = String::from_utf8(sum)?;
            let sum = sum.split(' ').next().context("md5sum printed nothing")?;
            sums += &format!("{sum}  {inside}\n");
        }
    }
    let text = format!(
        "Package: nvmirage\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: The nvmirage developers <nvmirage@localhost>\n\
         Installed-Size: {}\n\
         Depends: {}, init-system-helpers (>= 1.54~), systemd | systemd-standalone-sysusers\n\
         Suggests: qemu-system-x86 (>= 1:10.1), fuse3, libssl3t64 | libssl3\n\
         Section: admin\n\
         Priority: optional\n\
         Description: software-emulated NVMe drives\n \
         Presents NVMe controllers to virtual machines and processes over vfio-user. A\n \
         controller is backed by memory, a file, a block device or a part of a physical\n \
         drive, at full speed or with the timing of a chosen drive.\n",
        env!("CARGO_PKG_VERSION"),
        architecture()?,
        bytes.div_ceil(1024),
        libraries(&root.join("usr/bin/nvmirage"))?,
    );
    let folder = root.join("DEBIAN");
    write(&folder.join("control"), text.as_bytes(), 0o644)?;
    write(&folder.join("md5sums"), sums.as_bytes(), 0o644)?;
    write(&folder.join("conffiles"), CONFFILES.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let content = fs::read(workspace.root.join("package/debian").join(script))?;
        write(&folder.join(script), &content, 0o755)?;
    }
    Ok(())
}

fn has_dashboard(program: &[u8]) -> bool {
    program
        .windows(DASHBOARD.len())
        .any(|part| part == DASHBOARD)
}

fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("packages are not made on {other}"),
    }
}

/// The packages that the program's libraries are of, the C library not older than its newest symbol
/// that is used.
fn libraries(program: &Path) -> Result<String> {
    let headers = String::from_utf8(output(Command::new("objdump").arg("-p").arg(program))?)?;
    let needed = headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    let mut packages = Vec::new();
    for library in needed {
        packages.push(match library.trim() {
            "libgcc_s.so.1" => "libgcc-s1".to_owned(),
            "libc.so.6" => {
                let (major, minor) =
                    newest_symbol(&headers).context("the program uses no C library")?;
                format!("libc6 (>= {major}.{minor})")
            }
            // parts of the C library
            "libm.so.6" | "ld-linux-x86-64.so.2" | "ld-linux-aarch64.so.1" => continue,
            other => anyhow::bail!("which package has {other}? say it in xtask/src/package.rs"),
        });
    }
    Ok(packages.join(", "))
}

/// The newest version of the C library's symbols that `objdump -p` lists.
fn newest_symbol(headers: &str) -> Option<(u32, u32)> {
    let versions = headers.split_whitespace().filter_map(|word| {
        let (major, minor) = word.strip_prefix("GLIBC_")?.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max()
}

/// Every file below `folder`, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?)
        } else {
            found.push(entry.path())
        }
    }
    found.sort();
    Ok(found)
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn done(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", said.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_the_dashboard_is_known() {
        let around = |page: &str| has_dashboard(format!("before{page}behind").as_bytes());
        assert!(around(include_str!("../../web/index.html")));
        assert!(!around(include_str!(
            "../../crates/server/src/control/dashboard/without.html"
        )));
        assert!(!has_dashboard(b""));
    }

    #[test]
    fn versions_compare_as_numbers() {
        let headers = "0x1 GLIBC_2.9\n 0x2 00 03 GLIBC_2.34\n GLIBC_2.2.5 GCC_3.0 GLIBC_PRIVATE";
        assert_eq!(newest_symbol(headers), Some((2, 34)));
        assert_eq!(newest_symbol("GCC_3.0"), None);
    }
}
