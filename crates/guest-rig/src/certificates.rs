//! Certificates for tests, made by the program `openssl`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const DAYS: &str = "2";

fn make(folder: &Path, name: &str, args: &[&str]) -> Result<()> {
    let (key, certificate) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", DAYS]);
    command.args(["-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-keyout", &key, "-out", &certificate]);
    let output = command
        .args(["-subj", &format!("/CN={name}")])
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot run openssl: install the package openssl")?;
    ensure!(
        output.status.success(),
        "openssl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Makes files in a folder, with the names that clients of GnuTLS look for: an authority
/// (`ca-cert.pem`), and certificates of it with their keys for a server on this machine
/// (`server-cert.pem`, `server-key.pem`) and for a client (`client-cert.pem`, `client-key.pem`).
///
/// # Errors
/// There is no such program, or it fails.
pub fn write(folder: &Path) -> Result<()> {
    make(folder, "ca", &["-addext", "keyUsage=critical,keyCertSign"])?;
    let of_ca = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem"];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
    let of = |more: &[&'static str]| [&of_ca[..], &leaf, more].concat();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let server = ["-addext", names, "-addext", "extendedKeyUsage=serverAuth"];
    make(folder, "server", &of(&server))?;
    make(
        folder,
        "client",
        &of(&["-addext", "extendedKeyUsage=clientAuth"]),
    )
}
