//! `[[host]]`: a host that connects over NVMe/TCP, and the secrets that it and the controller prove
//! to know.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Bounds, Names, object};
use super::problem::{Place, Problem};
use super::{Config, Controller};

/// Most hosts.
const MAX_HOSTS: usize = 4096;
/// Longest NQN (Base 2.1, 4.7).
const MAX_NQN_LEN: usize = 223;

/// Use of a key of TLS that host and controller make by DH-HMAC-CHAP (secure channel
/// concatenation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Concatenation {
    /// Where the host asks for it, and the server's system has OpenSSL 3.
    #[default]
    Allowed,
    /// For every connection: the host does not connect otherwise.
    Required,
}

object! {
    /// Host over NVMe/TCP.
    pub struct Host(HostKeys, "host") {
        /// NVMe Qualified Name of the host: `nqn.YYYY-MM.reverse.domain:name`.
        nqn: String => Step { bounds: Bounds::Ascii(MAX_NQN_LEN), value: "NQN" };
        /// Name of the host, for `allow` and `hosts`, instead of its NQN.
        name: Option<String> | unset => Step { bounds: Bounds::Name, value: "NAME" };
        /// File with the host's secret, as `nvme gen-dhchap-key` prints it: the host authenticates
        /// itself by DH-HMAC-CHAP. A regular file that only its owner can read, or
        /// `credential:NAME` for a systemd credential.
        #[schema(value_type = Option<String>)]
        dhchap_key: Option<PathBuf> | unset => Step {
            unset: "the host is not authenticated",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the controller's secret for this host, as `dhchap_key`: the controller
        /// authenticates itself where the host asks for that.
        #[schema(value_type = Option<String>)]
        dhchap_ctrl_key: Option<PathBuf> | unset => Step {
            unset: "the controller does not authenticate itself",
            value: "FILE",
            names: Names::Files,
        };
        /// Encryption by TLS with a key that host and controller make by DH-HMAC-CHAP (secure
        /// channel concatenation): `allowed` where the host asks for that, `required` for all of
        /// its connections to controllers. Needs `dhchap_key`.
        concatenation: Concatenation = Concatenation::default() => Step;
        /// File with the pre-shared key of the host for TLS 1.3, as `nvme gen-tls-key` prints it:
        /// the host connects through TLS, and not otherwise. A regular file that only its owner can
        /// read, or `credential:NAME` for a systemd credential.
        #[schema(value_type = Option<String>)]
        tls_key: Option<PathBuf> | unset => Step {
            unset: "the host connects without TLS",
            value: "FILE",
            names: Names::Files,
        };
    }
}

/// Whether a text is an NQN, and not the name of a host: names have no dot behind `nqn`.
fn is_nqn(text: &str) -> bool {
    text.starts_with("nqn.")
}

impl Config {
    /// The host with this name or NQN.
    pub fn host_of(&self, text: &str) -> Option<&Host> {
        let is_it = |host: &&Host| host.nqn == text || host.name.as_deref() == Some(text);
        self.host.iter().find(is_it)
    }

    /// The NQN of a host, by its name or NQN.
    pub fn nqn_of<'a>(&'a self, text: &'a str) -> &'a str {
        self.host_of(text).map_or(text, |host| &host.nqn)
    }

    /// The NQNs of hosts that may connect to a controller over NVMe/TCP, each with its `[[host]]`;
    /// `None`: all hosts.
    pub fn allowed_hosts<'a>(
        &'a self,
        controller: &'a Controller,
    ) -> Option<Vec<(&'a str, Option<&'a Host>)>> {
        let allow = controller.tcp.as_ref().and_then(|tcp| tcp.allow.as_ref());
        let hosts = self.host.iter();
        let Some(allow) = allow else {
            let all = hosts.map(|host| (host.nqn.as_str(), Some(host)));
            return (!self.host.is_empty()).then(|| all.collect());
        };
        // Both lists may be long: each text is looked up, and not searched for.
        let names = hosts
            .clone()
            .filter_map(|host| Some((host.name.as_deref()?, host)));
        let nqns = hosts.map(|host| (host.nqn.as_str(), host));
        let known: HashMap<&str, &Host> = names.chain(nqns).collect();
        let of = |text: &'a String| {
            let host = known.get(text.as_str()).copied();
            (host.map_or(text.as_str(), |host| &host.nqn), host)
        };
        Some(allow.iter().map(of).collect())
    }

    /// The hosts of `[[host]]` that may connect to a controller over NVMe/TCP.
    pub fn known_hosts<'a>(&'a self, controller: &'a Controller) -> impl Iterator<Item = &'a Host> {
        let allowed = self.allowed_hosts(controller).unwrap_or_default();
        allowed.into_iter().filter_map(|(_, host)| host)
    }

    /// Whether every host that may connect to a controller authenticates itself.
    pub(super) fn authenticates_all(&self, controller: &Controller) -> bool {
        let has_key = |host: &Host| host.dhchap_key.is_some() || host.tls_key.is_some();
        let allowed = self.allowed_hosts(controller);
        allowed.is_some_and(|all| all.iter().all(|(_, host)| host.is_some_and(has_key)))
    }

    /// Appends what is wrong with hosts.
    pub(super) fn validate_hosts(&self, problems: &mut Vec<Problem>) {
        if self.host.len() > MAX_HOSTS {
            problems.push(Problem {
                place: "host".into(),
                what: format!(
                    "{} hosts, more than the maximum of {MAX_HOSTS}: remove some",
                    self.host.len()
                ),
            });
            return;
        }
        for (index, host) in self.host.iter().enumerate() {
            let mut place = Place {
                name: format!("host {}", host.nqn),
                problems,
            };
            place.keys(host);
            place.require(is_nqn(&host.nqn), || {
                format!(
                    "nqn = \"{}\": write an NQN, which begins with `nqn.`",
                    host.nqn
                )
            });
            let before = &self.host[..index];
            place.require(before.iter().all(|other| other.nqn != host.nqn), || {
                "there are two hosts with this NQN: keep one".into()
            });
            if let Some(name) = &host.name {
                place.require(!is_nqn(name), || {
                    format!("name = \"{name}\": a name does not begin with `nqn.`")
                });
                let is_other = |other: &Host| other.name.as_ref() != Some(name);
                place.require(before.iter().all(is_other), || {
                    format!("name = \"{name}\": another host has that name: choose another one")
                });
            }
            let is_required = host.concatenation == Concatenation::Required;
            place.require(!is_required || host.dhchap_key.is_some(), || {
                "concatenation = \"required\": a key of TLS is made by DH-HMAC-CHAP: write dhchap_key, too".into()
            });
            place.require(!is_required || host.tls_key.is_none(), || {
                "concatenation = \"required\": a host with a tls_key connects with that: remove one of both".into()
            });
            place.require(
                host.dhchap_key.is_some() || host.dhchap_ctrl_key.is_none(),
                || {
                    "dhchap_ctrl_key: the controller authenticates itself only to hosts that do: write dhchap_key, too".into()
                },
            );
        }
    }

    /// Appends what is wrong with a list of hosts.
    pub(super) fn validate_listed(&self, key: &str, listed: &[String], place: &mut Place<'_>) {
        for (index, text) in listed.iter().enumerate() {
            place.require(is_nqn(text) || self.host_of(text).is_some(), || {
                format!(
                    "{key}: there is no host \"{text}\": write an NQN, or a [[host]] with that name"
                )
            });
            place.require(text.len() <= MAX_NQN_LEN, || {
                format!("{key}: an NQN has at most {MAX_NQN_LEN} bytes: shorten \"{text}\"")
            });
            place.require(!listed[..index].contains(text), || {
                format!("{key}: \"{text}\" is listed twice")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::from_toml;

    const OUTSIDE: &str = "[[controller]]\nname = \"c\"\nlisten = \"nvme-tcp:0.0.0.0:4420\"\n";
    const LOCAL: &str = "[[controller]]\nname = \"c\"\nlisten = \"nvme-tcp:127.0.0.1:4420\"\n";
    const KEYED: &str = "[[host]]\nnqn = \"nqn.a\"\nname = \"a\"\ndhchap_key = \"/k\"\n";
    const PLAIN: &str = "[[host]]\nnqn = \"nqn.b\"\nname = \"b\"\n";

    fn allowed(text: &str) -> Option<Vec<String>> {
        let config = from_toml(text).unwrap();
        let allowed = config.allowed_hosts(&config.controller[0]);
        allowed.map(|all| all.into_iter().map(|(nqn, _)| nqn.to_owned()).collect())
    }

    #[test]
    fn allowed_hosts_are_those_listed_or_all_that_are_known() {
        assert_eq!(allowed(LOCAL), None);
        let both = format!("{KEYED}{PLAIN}{LOCAL}");
        assert_eq!(allowed(&both).unwrap(), ["nqn.a", "nqn.b"]);
        let listed = |list: &str| allowed(&format!("{both}tcp = {{ allow = {list} }}")).unwrap();
        assert_eq!(listed("[\"b\", \"nqn.z\"]"), ["nqn.b", "nqn.z"]);
        assert_eq!(listed("[]"), [""; 0], "no host");
    }

    #[test]
    fn an_address_for_others_needs_a_key_of_every_host_or_consent() {
        let is_served = |text: String| from_toml(&text).is_ok();
        assert!(is_served(format!("{KEYED}{OUTSIDE}")));
        assert!(!is_served(format!("{KEYED}{PLAIN}{OUTSIDE}")));
        let allow = |list| format!("{KEYED}{PLAIN}{OUTSIDE}tcp = {{ allow = {list} }}");
        assert!(is_served(allow("[\"a\"]")) && is_served(allow("[\"nqn.a\"]")));
        assert!(!is_served(allow("[\"a\", \"b\"]")) && !is_served(allow("[\"nqn.z\"]")));
        assert!(!is_served(OUTSIDE.to_owned()));
        let consent = "tcp = { allow_anonymous = true }";
        assert!(is_served(format!("{PLAIN}{OUTSIDE}{consent}")));
    }

    #[test]
    fn hosts_with_a_key_of_tls_are_authenticated() {
        let secure = "[[host]]\nnqn = \"nqn.s\"\nname = \"s\"\ntls_key = \"/k\"\n";
        let known = |text: &str| {
            let config = from_toml(text).unwrap();
            let known = config.known_hosts(&config.controller[0]);
            known.map(|host| host.nqn.clone()).collect::<Vec<_>>()
        };
        assert_eq!(known(&format!("{secure}{OUTSIDE}")), ["nqn.s"]);
        let both = format!("{secure}{KEYED}{OUTSIDE}");
        assert_eq!(known(&both), ["nqn.s", "nqn.a"]);
        assert_eq!(known(LOCAL), [""; 0]);
        let listed = "tcp = { allow = [\"a\"] }";
        assert_eq!(known(&format!("{both}{listed}")), ["nqn.a"]);
        assert!(from_toml(&format!("{secure}{PLAIN}{OUTSIDE}")).is_err());
    }

    #[test]
    fn wrong_hosts_are_named() {
        for (text, says) in [
            ("[[host]]\nnqn = \"iqn.a\"".to_owned(), "begins with `nqn.`"),
            (format!("{KEYED}{KEYED}"), "two hosts with this NQN"),
            (
                format!("{KEYED}[[host]]\nnqn = \"nqn.c\"\nname = \"a\""),
                "another host has that name",
            ),
            (
                "[[host]]\nnqn = \"nqn.a\"\ndhchap_ctrl_key = \"/k\"".to_owned(),
                "write dhchap_key, too",
            ),
            (
                "[[host]]\nnqn = \"nqn.a\"\nconcatenation = \"required\"".to_owned(),
                "write dhchap_key, too",
            ),
            (
                format!("{KEYED}tls_key = \"/t\"\nconcatenation = \"required\""),
                "remove one of both",
            ),
            (
                format!("{LOCAL}tcp = {{ allow = [\"x\"] }}"),
                "there is no host \"x\"",
            ),
            (
                format!("{LOCAL}tcp = {{ allow = [\"nqn.x\", \"nqn.x\"] }}"),
                "listed twice",
            ),
            (
                "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1MiB\"\n[[namespace]]\nname = \"n\"\nmedia = \"m\"\nhosts = [\"x\"]".to_owned(),
                "hosts: there is no host \"x\"",
            ),
        ] {
            let error = format!("{:#}", from_toml(&text).unwrap_err());
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
