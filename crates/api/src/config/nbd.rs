//! `nbd` of a controller with `listen = "nbd:…"`: its table of keys.

use std::path::{Path, PathBuf};

use super::object::{Bounds, Names, object};

/// Clients of a subsystem at the same time, as far as it has room for their controllers.
const MAX_CLIENTS: u64 = subsystem::MAX_DYNAMIC_CONTROLLERS as u64;

object! {
    /// NBD options of a controller.
    #[derive(Eq)]
    pub struct Nbd(NbdKeys, "nbd") {
        /// Maximum number of clients at the same time; each connection is one. A client uses up to
        /// 5 MiB of memory for data.
        clients: u16 = 16 => Fixed { bounds: Bounds::Whole(1, MAX_CLIENTS), value: "N" };
        /// Serve a TCP address that other machines reach, although NBD clients are not
        /// authenticated. Only `tls_cert` or `tls_psk` encrypts their data.
        allow_anonymous: bool = false => Fixed;
        /// File with the server's certificate for TLS 1.3, in PEM, and behind it those between it
        /// and its authority: all clients come through TLS. Needs `tls_cert_key`.
        #[schema(value_type = Option<String>)]
        tls_cert: Option<PathBuf> | unset => Fixed {
            unset: "the server has no certificate",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the private key of `tls_cert`, in PEM and without a passphrase. A regular file
        /// that only its owner can read, or `credential:NAME` for a systemd credential.
        #[schema(value_type = Option<String>)]
        tls_cert_key: Option<PathBuf> | unset => Fixed {
            unset: "none, as without `tls_cert`",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the certificates of authorities, in PEM: each client needs a certificate of
        /// one of them, or a key of `tls_psk`. Needs `tls_cert`.
        #[schema(value_type = Option<String>)]
        tls_client_ca: Option<PathBuf> | unset => Fixed {
            unset: "clients need no certificate",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the names of users and their pre-shared keys for TLS 1.3, as `psktool` of
        /// GnuTLS writes it: all clients come through TLS. A regular file that only its owner can
        /// read, or `credential:NAME` for a systemd credential.
        #[schema(value_type = Option<String>)]
        tls_psk: Option<PathBuf> | unset => Fixed {
            unset: "no user has a key",
            value: "FILE",
            names: Names::Files,
        };
    }
}

impl Nbd {
    /// Maximum memory of one client for data, in bytes.
    pub const CLIENT_MEMORY: u64 = 5 << 20;

    /// Whether all clients come through TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_cert.is_some() || self.tls_psk.is_some()
    }

    /// Whether TLS authenticates every client: by its certificate or its key.
    pub fn authenticates(&self) -> bool {
        match &self.tls_cert {
            Some(_) => self.tls_client_ca.is_some(),
            None => self.tls_psk.is_some(),
        }
    }

    /// Files of TLS, by their keys, where they are written.
    pub fn tls_files(&self) -> [(&'static str, Option<&Path>); 4] {
        [
            ("tls_cert", self.tls_cert.as_deref()),
            ("tls_cert_key", self.tls_cert_key.as_deref()),
            ("tls_client_ca", self.tls_client_ca.as_deref()),
            ("tls_psk", self.tls_psk.as_deref()),
        ]
    }

    /// Errors of the keys of TLS.
    pub(super) fn wrong_tls(&self) -> Vec<String> {
        let has = |name: &str| {
            let mut files = self.tls_files().into_iter();
            files.any(|(other, file)| other == name && file.is_some())
        };
        let mut problems = Vec::new();
        for (key, other, why) in [
            (
                "tls_cert",
                "tls_cert_key",
                "a certificate has a private key",
            ),
            (
                "tls_cert_key",
                "tls_cert",
                "a private key is that of a certificate",
            ),
            (
                "tls_client_ca",
                "tls_cert",
                "clients show certificates only to a server that has one",
            ),
        ] {
            if has(key) && !has(other) {
                problems.push(format!("{key}: {why}: write {other}, too, or remove it"));
            }
        }
        if has("tls_psk") && has("tls_cert") && !has("tls_client_ca") {
            problems.push("tls_psk: with tls_cert and without tls_client_ca clients without a key connect as well: write tls_client_ca, too, or remove tls_cert or tls_psk".into());
        }
        for (key, file) in self.tls_files() {
            if file.is_some_and(|file| file.as_os_str().is_empty()) {
                problems.push(format!(
                    "{key} = \"\": write the path of a file, or remove it"
                ));
            }
        }
        problems
    }
}

impl Default for Nbd {
    fn default() -> Self {
        let complete = NbdKeys::default().complete();
        complete.expect("no key is required")
    }
}
