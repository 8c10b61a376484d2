//! Which of our crates may depend on which: a wall between two crates is there because a rule
//! differs on its two sides.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// Crates, each with those that it may use.
pub(super) type Table<'a> = &'a [(&'a str, &'a [&'a str])];

/// For each crate, those of ours that it may depend on. A crate that is not here may not exist.
pub(super) const ALLOWED: Table<'static> = &[
    (
        "api",
        &[
            "controller",
            "driver",
            "engine",
            "media",
            "model",
            "nvme-spec",
            "port",
            "subsystem",
        ],
    ),
    ("authentication", &["nvme-spec"]),
    ("client", &["api", "machine", "model", "terminal"]),
    ("command-path", &["controller", "engine", "media", "port"]),
    ("conformance", &["driver", "memory"]),
    ("controller", &["memory", "nvme-spec", "port", "subsystem"]),
    (
        "driver",
        &[
            "authentication",
            "memory",
            "nvme-spec",
            "nvme-tcp",
            "tls",
            "vfio-user",
        ],
    ),
    ("engine", &["controller", "memory", "port", "subsystem"]),
    ("guest-rig", &[]),
    ("holder", &["vfio-user"]),
    (
        "lab",
        &[
            "api",
            "authentication",
            "conformance",
            "controller",
            "driver",
            "load",
            "machine",
            "media",
            "memory",
            "model",
            "nvme-spec",
            "plot",
            "simulate",
            "terminal",
            "guest-rig",
            "trace-file",
        ],
    ),
    (
        "load",
        &[
            "controller",
            "driver",
            "machine",
            "memory",
            "nvme-spec",
            "simulate",
            "terminal",
            "trace-file",
        ],
    ),
    ("fuse", &["driver", "memory", "nvme-spec", "terminal"]),
    (
        "loopback",
        &[
            "controller",
            "driver",
            "memory",
            "nvme-spec",
            "port",
            "subsystem",
        ],
    ),
    ("machine", &["port"]),
    ("media", &["driver", "memory", "model", "nvme-spec", "port"]),
    ("memory", &[]),
    ("model", &[]),
    ("nbd", &[]),
    ("nvme-spec", &[]),
    ("plot", &[]),
    ("port", &["memory", "nvme-spec"]),
    (
        "nvmirage",
        &[
            "api", "client", "fuse", "holder", "lab", "machine", "media", "memory", "model",
            "server", "terminal",
        ],
    ),
    (
        "reactor",
        &[
            "api",
            "command-path",
            "controller",
            "engine",
            "machine",
            "media",
            "memory",
            "model",
            "nvme-spec",
            "port",
            "subsystem",
            "transport",
            "ublk",
            "vfio-user",
        ],
    ),
    (
        "server",
        &[
            "authentication",
            "api",
            "controller",
            "driver",
            "engine",
            "fuse",
            "holder",
            "machine",
            "media",
            "memory",
            "model",
            "nvme-spec",
            "port",
            "reactor",
            "simulate",
            "subsystem",
            "terminal",
            "trace-file",
            "transport",
            "ublk",
            "vfio-user",
        ],
    ),
    (
        "simulate",
        &[
            "controller",
            "driver",
            "engine",
            "media",
            "memory",
            "model",
            "nvme-spec",
            "port",
            "subsystem",
        ],
    ),
    (
        "tests-counts",
        &[
            "controller",
            "driver",
            "engine",
            "loopback",
            "media",
            "memory",
            "nvme-spec",
            "nvme-tcp",
            "port",
            "subsystem",
            "tests-vhost-front",
            "transport",
        ],
    ),
    (
        "tests-fuzz",
        &[
            "authentication",
            "controller",
            "driver",
            "engine",
            "media",
            "memory",
            "nbd",
            "nvme-spec",
            "nvme-tcp",
            "port",
            "subsystem",
            "tests-hostile",
            "tls",
            "trace-file",
            "transport",
            "ublk",
            "vfio-user",
        ],
    ),
    // Neither has nvme-spec: their numbers are typed from the specification once more.
    (
        "tests-hostile",
        &[
            "controller",
            "driver",
            "engine",
            "media",
            "memory",
            "port",
            "subsystem",
        ],
    ),
    (
        "tests-model",
        &[
            "controller",
            "driver",
            "loopback",
            "media",
            "memory",
            "port",
            "subsystem",
        ],
    ),
    ("tests-oracle", &["model", "simulate"]),
    (
        "tests-protocol",
        &[
            "controller",
            "engine",
            "holder",
            "media",
            "memory",
            "nvme-spec",
            "port",
            "guest-rig",
            "transport",
            "vfio-user",
            "subsystem",
        ],
    ),
    (
        "tests-sim",
        &[
            "controller",
            "engine",
            "media",
            "memory",
            "model",
            "nvme-spec",
            "port",
            "subsystem",
        ],
    ),
    (
        "tests-soak",
        &["driver", "memory", "nvme-spec", "tests-sim"],
    ),
    ("nvme-tcp", &["nvme-spec"]),
    ("subsystem", &["memory", "nvme-spec", "port"]),
    ("terminal", &[]),
    // Neither vhost-user nor transport: it is their oracle.
    ("tests-vhost-front", &["memory"]),
    ("tests-vm", &[]),
    ("tls", &[]),
    ("trace-file", &["nvme-spec"]),
    (
        "transport",
        &[
            "authentication",
            "controller",
            "memory",
            "nbd",
            "nvme-spec",
            "nvme-tcp",
            "port",
            "tls",
            "ublk",
            "vfio-user",
            "vhost-user",
        ],
    ),
    ("ublk", &["memory"]),
    ("vfio-user", &[]),
    ("vhost-user", &[]),
    ("xtask", &["guest-rig", "vfio-user", "xtask-shared"]),
    (
        "xtask-bench",
        &["guest-rig", "plot", "tests-vhost-front", "xtask-shared"],
    ),
    ("xtask-shared", &["guest-rig"]),
];

/// Crates of others that only some of ours may use.
const RESTRICTED: &[(&str, &[&str])] = &[
    ("axum", &["server"]),
    ("http", &["client", "server"]),
    ("hyper", &["client", "server"]),
    ("tokio", &["server"]),
];

/// What the tests of a crate may use beside that.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    (
        "conformance",
        &["controller", "loopback", "media", "port", "subsystem"],
    ),
    ("driver", &["controller", "loopback", "port", "subsystem"]),
    ("engine", &["nvme-spec"]),
    ("media", &["controller", "loopback", "subsystem"]),
    ("reactor", &["tests-vhost-front"]),
    (
        "transport",
        &[
            "driver",
            "loopback",
            "media",
            "subsystem",
            "tests-vhost-front",
        ],
    ),
    ("tests-vhost-front", &["guest-rig"]),
    ("tests-vm", &["guest-rig"]),
    ("tls", &["guest-rig"]),
    (
        "nvmirage",
        &[
            "driver",
            "guest-rig",
            "nvme-spec",
            "simulate",
            "tests-vhost-front",
            "vfio-user",
        ],
    ),
];

/// Checks the output of `cargo metadata --no-deps`.
///
/// # Errors
/// It is not such an output.
pub(super) fn check(metadata: &str) -> Result<Vec<Finding>> {
    check_against(metadata, ALLOWED, ALLOWED_IN_TESTS)
}

fn check_against(metadata: &str, allowed: Table<'_>, in_tests: Table<'_>) -> Result<Vec<Finding>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let names: Vec<_> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let listed = |table: Table<'_>, from: &str, to: &str| {
        table
            .iter()
            .any(|(name, uses)| *name == from && uses.contains(&to))
    };
    let mut findings = Vec::new();
    for package in packages {
        let from = package["name"]
            .as_str()
            .context("a package without a name")?;
        let mut find = |what: String| {
            findings.push(Finding {
                file: format!("the crate {from}"),
                line: 0,
                what,
            });
        };
        if !allowed.iter().any(|(name, _)| *name == from) {
            find(
                "is not in the table of crates: add it to ARCHITECTURE.md and to this check".into(),
            );
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let test = dependency["kind"] == "dev";
            if let Some((_, users)) = RESTRICTED.iter().find(|(name, _)| *name == to)
                && !users.contains(&from)
            {
                find(format!(
                    "must not depend on {to}: only {} does, see ARCHITECTURE.md",
                    users.join(", ")
                ));
            }
            // A crate's own integration tests may ask for features of it.
            let ours = names.contains(&to) && !(test && to == from);
            if ours && !listed(allowed, from, to) && !(test && listed(in_tests, from, to)) {
                let where_ = if test { " in its tests" } else { "" };
                find(format!(
                    "must not depend on {to}{where_}: see the crates in ARCHITECTURE.md"
                ));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table<'static> = &[("a", &["b"]), ("b", &[]), ("c", &[])];
    const TESTS: Table<'static> = &[("b", &["c"])];

    /// What is found where `from` depends on `to`, as cargo prints it.
    fn found(from: &str, to: &str, kind: &str) -> Vec<String> {
        let metadata = format!(
            r#"{{"packages":[
                {{"name":"a","dependencies":[]}}, {{"name":"b","dependencies":[]}}, {{"name":"c","dependencies":[]}},
                {{"name":"{from}","dependencies":[{{"name":"{to}","kind":{kind}}}]}}
            ]}}"#
        );
        let findings = check_against(&metadata, TABLE, TESTS).unwrap();
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn listed_arrows_pass() {
        assert!(found("a", "b", "null").is_empty());
        assert!(found("a", "b", r#""dev""#).is_empty());
        assert!(found("b", "c", r#""dev""#).is_empty());
        assert!(found("b", "b", r#""dev""#).is_empty());
        assert!(found("a", "serde", "null").is_empty());
    }

    #[test]
    fn other_arrows_are_found() {
        assert!(found("b", "a", "null")[0].contains("the crate b: must not depend on a:"));
        assert!(found("b", "c", "null")[0].contains("must not depend on c:"));
        assert!(found("b", "c", r#""build""#)[0].contains("must not depend on c:"));
        assert!(found("c", "a", r#""dev""#)[0].contains("must not depend on a in its tests"));
    }

    #[test]
    fn crates_of_others_may_be_restricted() {
        assert!(found("a", "tokio", "null")[0].contains("must not depend on tokio: only server"));
        let http = &found("a", "hyper", "null")[0];
        assert!(http.contains("must not depend on hyper: only client, server"));
        let table: Table<'_> = &[("server", &[])];
        let metadata =
            r#"{"packages":[{"name":"server","dependencies":[{"name":"tokio","kind":null}]}]}"#;
        assert!(check_against(metadata, table, &[]).unwrap().is_empty());
    }

    #[test]
    fn unknown_crates_are_found() {
        assert!(found("new", "serde", "null")[0].contains("not in the table"));
    }

    #[test]
    fn something_else_than_metadata_is_an_error() {
        assert!(check("{}").is_err());
        assert!(check("error: no").is_err());
    }
}
