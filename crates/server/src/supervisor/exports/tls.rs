//! The files of TLS of NBD clients: a certificate with its private key, authorities of clients, and
//! keys of users.

use std::path::Path;

use anyhow::Context;
use api::config::Nbd;
use machine::files::read_text;
use machine::secret;
use transport::nbd::{Certificate, Tls, USERS_LEN, Users};
use transport::secure::Handshakes;

/// Bytes of a file with certificates at most.
const CERTIFICATES_LEN: u64 = 1 << 20;
/// Bytes of a file with a private key at most.
const KEY_LEN: usize = 64 << 10;

/// Certificates, which are no secret.
fn certificates(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text = read_text(path, CERTIFICATES_LEN);
    let text = text.with_context(|| format!("cannot read the certificate {}", path.display()))?;
    Ok(text.into_bytes())
}

/// TLS with what the files have now.
pub(super) fn tls(nbd: &Nbd, handshakes: Handshakes) -> anyhow::Result<Tls> {
    let users = nbd.tls_psk.as_deref().map(|path| {
        let text = secret::read_up_to(path, USERS_LEN)?;
        Users::read(&text).with_context(|| format!("tls_psk {}", path.display()))
    });
    let users = users.transpose()?;
    let chain = nbd.tls_cert.as_deref().map(certificates).transpose()?;
    let key = nbd.tls_cert_key.as_deref();
    let key = key.map(|path| secret::read_up_to(path, KEY_LEN));
    let key = key.transpose()?;
    let clients = nbd.tls_client_ca.as_deref().map(certificates).transpose()?;
    let certificate = chain.as_deref().zip(key.as_ref());
    let certificate = certificate.map(|(chain, key)| Certificate {
        chain,
        key: key.as_bytes(),
        clients: clients.as_deref(),
    });
    let files = [&nbd.tls_cert, &nbd.tls_cert_key, &nbd.tls_client_ca];
    let files = files.into_iter().flatten();
    let names: Vec<String> = files.map(|path| path.display().to_string()).collect();
    Tls::new(certificate.as_ref(), users, handshakes).with_context(|| names.join(", "))
}
