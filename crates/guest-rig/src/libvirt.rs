//! libvirt's own description of what a domain may say, and the program that holds a file against
//! it, from Debian's packages: to check what we tell its users.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::apt::open_apt;
use crate::cache::{Cache, Note, key_hash};
use crate::debian::{self, Program};

const SCHEMAS: &str = "libvirt-common";
const CHECKER: &str = "libxml2-utils";
const DOMAIN: &str = "usr/share/libvirt/schemas/domain.rng";
const XMLLINT: &str = "usr/bin/xmllint";

fn key() -> String {
    let recipe = format!("{SCHEMAS} {CHECKER} {}", debian::RELEASE);
    format!("libvirt-{}", key_hash(&[recipe.as_bytes()]))
}

/// Fetches both where they are missing.
///
/// # Errors
/// This is no Debian on x86-64, or fetching fails.
pub(crate) fn prepare(cache: &Cache, note: Note<'_>) -> Result<()> {
    cache.ensure(&key(), note, |dir, note| {
        let apt = open_apt(dir, note)?;
        apt.unpack_closure(debian::RELEASE, &[CHECKER], dir, note)?;
        apt.unpack_alone(&[SCHEMAS.to_owned()], dir, note)?;
        apt.close()
    })?;
    Ok(())
}

/// `xmllint`, and the schema of domains.
///
/// # Errors
/// They have not been fetched: says how to.
pub fn domain_checker() -> Result<(Program, PathBuf)> {
    let root = Cache::open()?.get(&key());
    let root = root.context("no schemas of libvirt: run `cargo xtask setup`")?;
    let schema = root.join(DOMAIN);
    Ok((Program::private(&root, XMLLINT), schema))
}
