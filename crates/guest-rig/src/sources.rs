//! Where the system's own apt gets Debian from: the mirror's address is read, in both formats of
//! apt's sources, and written nowhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The address of the Debian mirror that the sources under `etc` (`/etc/apt`) name.
///
/// The first source of binary packages counts whose suite is a release of Debian and whose
/// components have `main`. An address that ends in `debian` goes before others, since third parties
/// also name their suites after Debian's releases.
///
/// # Errors
/// No source is fit.
pub fn debian_mirror(etc: &Path) -> Result<String> {
    let mut found = Vec::new();
    for file in source_files(etc) {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        if file
            .extension()
            .is_some_and(|extension| extension == "sources")
        {
            found.extend(deb822(&text));
        } else {
            found.extend(one_line(&text));
        }
    }
    let fit = |source: &&Source| {
        source.components.iter().any(|c| c == "main") && source.suites.iter().any(|s| is_release(s))
    };
    let mut fit: Vec<_> = found.iter().filter(fit).collect();
    fit.sort_by_key(|source| !names_debian(&source.address));
    fit.first()
        .map(|source| source.address.clone())
        .context("no Debian mirror in the system's apt sources: add one, with the component main")
}

#[derive(Debug, PartialEq)]
struct Source {
    address: String,
    suites: Vec<String>,
    components: Vec<String>,
}

fn source_files(etc: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(etc.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten();
    let known = |path: &PathBuf| {
        path.extension()
            .is_some_and(|e| e == "list" || e == "sources")
    };
    let mut files: Vec<_> = parts.map(|entry| entry.path()).filter(known).collect();
    files.sort();
    files.insert(0, etc.join("sources.list"));
    files
}

/// `deb [option=value …] ADDRESS SUITE COMPONENT…`, one a line.
fn one_line(text: &str) -> Vec<Source> {
    let parse = |line: &str| {
        let line = line.split('#').next()?.trim();
        let mut rest = line
            .strip_prefix("deb")?
            .strip_prefix([' ', '\t'])?
            .trim_start();
        if let Some(options) = rest.strip_prefix('[') {
            rest = options.split_once(']')?.1;
        }
        let mut words = rest.split_whitespace().map(str::to_owned);
        Some(Source {
            address: words
                .next()
                .filter(|address| !address.starts_with("cdrom:"))?,
            suites: vec![words.next()?],
            components: words.collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Stanzas of `Field: value`, parted by empty lines; a line that starts with a blank goes on with
/// the field before it.
fn deb822(text: &str) -> Vec<Source> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let parse = |stanza: &[&str]| {
        let addresses = field(stanza, "URIs");
        let enabled = field(stanza, "Enabled")
            .first()
            .is_none_or(|word| word != "no");
        let binary = field(stanza, "Types").iter().any(|word| word == "deb");
        (enabled && binary).then_some(())?;
        Some(Source {
            address: addresses
                .into_iter()
                .find(|address| !address.starts_with("cdrom:"))?,
            suites: field(stanza, "Suites"),
            components: field(stanza, "Components"),
        })
    };
    lines
        .split(|line| line.trim().is_empty())
        .filter_map(parse)
        .collect()
}

/// The words of a field of a stanza; none where it has no such field. Field names do not
/// distinguish case.
fn field(stanza: &[&str], name: &str) -> Vec<String> {
    let mut inside = false;
    let mut words = Vec::new();
    for line in stanza {
        let value = if line.starts_with([' ', '\t']) {
            line
        } else {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            inside = key.trim().eq_ignore_ascii_case(name);
            value
        };
        if inside {
            words.extend(value.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn is_release(suite: &str) -> bool {
    const RELEASES: [&str; 10] = [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "sid",
        "oldoldstable",
        "oldstable",
        "stable",
        "testing",
        "unstable",
    ];
    RELEASES.contains(&suite)
}

/// Whether the address's last part starts with `debian`: `…/debian`, `…/debian/`, or a list of
/// mirrors in `…/debian.list`.
fn names_debian(address: &str) -> bool {
    let last = address
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    last.starts_with("debian")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(files: &[(&str, &str)]) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        debian_mirror(dir.path())
    }

    #[test]
    fn one_line_with_options_and_comments() {
        let text = "# deb http://a/debian bookworm main\n\
                    deb cdrom:[Debian 12]/ bookworm main\n\
                    deb-src http://b/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://c/debian/ bookworm main contrib # ours\n";
        assert_eq!(
            mirror(&[("sources.list", text)]).unwrap(),
            "http://c/debian/"
        );
    }

    #[test]
    fn deb822_with_continuation_and_disabled_stanzas() {
        let text = "Types: deb\nURIs: http://off/debian\nSuites: trixie\nComponents: main\nEnabled: no\n\n\
                    # comment\nTypes: deb deb-src\nURIs:\n http://on/debian\nsuites: trixie\n trixie-updates\nComponents: main\n";
        assert_eq!(
            mirror(&[("sources.list.d/debian.sources", text)]).unwrap(),
            "http://on/debian"
        );
    }

    #[test]
    fn third_parties_do_not_count() {
        let other = "deb http://other/repo bookworm main\ndeb http://sdk/apt cloud-sdk main\n";
        let debian = "deb http://m/debian bookworm main\n";
        let both = [
            ("sources.list.d/a.list", other),
            ("sources.list.d/b.list", debian),
        ];
        assert_eq!(mirror(&both).unwrap(), "http://m/debian");
        let security = "deb http://m/debian-security bookworm-security main\n";
        assert!(mirror(&[("sources.list", security)]).is_err());
        assert!(mirror(&[]).unwrap_err().to_string().contains("apt sources"));
    }

    #[test]
    fn a_list_of_mirrors_is_an_address_too() {
        let text = "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: trixie\nComponents: main\n";
        let found = mirror(&[("sources.list.d/debian.sources", text)]).unwrap();
        assert_eq!(found, "mirror+file:///etc/apt/mirrors/debian.list");
    }
}
