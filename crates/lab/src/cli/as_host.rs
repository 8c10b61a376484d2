//! The options of commands that connect to a target over NVMe/TCP: who the command is there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use authentication::{Secret, TlsKey};
use driver::bus::nvme_tcp::Identity;
use driver::bus::place::Place;
use terminal::error::UsageError;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct AsHost {
    /// Host NQN for a target over NVMe/TCP. Default: a random one
    #[arg(long, value_name = "NQN")]
    hostnqn: Option<String>,

    /// File with this host's secret, for a target that authenticates hosts by DH-HMAC-CHAP. Only
    /// its owner can read it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    dhchap_key: Option<PathBuf>,

    /// File with the controller's secret: connect only to a controller that knows it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "dhchap_key")]
    dhchap_ctrl_key: Option<PathBuf>,

    /// File with this host's pre-shared key for TLS 1.3: connect through TLS. Needs --hostnqn. Only
    /// its owner can read it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "hostnqn")]
    tls_key: Option<PathBuf>,

    /// Make a key of TLS by DH-HMAC-CHAP, and connect through TLS with that (secure channel
    /// concatenation): the connection is encrypted, or fails
    #[arg(long, requires = "dhchap_key", conflicts_with = "tls_key")]
    concat: bool,

    /// Protect headers of NVMe/TCP by digests (CRC32C)
    #[arg(long)]
    hdr_digest: bool,

    /// Protect data of NVMe/TCP by digests (CRC32C)
    #[arg(long)]
    data_digest: bool,
}

fn secret(path: &Path) -> anyhow::Result<Secret> {
    let text = machine::secret::read(path)?;
    Secret::read(&text).with_context(|| format!("the secret {}", path.display()))
}

fn key_of_tls(path: &Path) -> anyhow::Result<TlsKey> {
    let text = machine::secret::read(path)?;
    TlsKey::read(&text).with_context(|| format!("the key {}", path.display()))
}

impl AsHost {
    /// Whether no option of it is given.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Makes this process that host. Before it connects.
    ///
    /// # Errors
    /// For the user: a secret cannot be read, or is none; or the target makes no keys.
    pub(crate) fn assume(&self, target: Option<&Place>) -> anyhow::Result<()> {
        let Self {
            hostnqn,
            dhchap_key,
            dhchap_ctrl_key,
            tls_key,
            concat,
            hdr_digest,
            data_digest,
        } = self;
        if *concat && !matches!(target, None | Some(Place::NvmeTcp(_))) {
            let text = "--concat: only a target over NVMe/TCP makes keys of TLS; leave it out";
            return Err(UsageError(text.to_owned()).into());
        }
        let has_digests = *hdr_digest || *data_digest;
        if hostnqn.is_none() && dhchap_key.is_none() && tls_key.is_none() && !has_digests {
            return Ok(());
        }
        let key = dhchap_key.as_deref().map(secret).transpose()?;
        let controller = dhchap_ctrl_key.as_deref().map(secret).transpose()?;
        let identity = Identity::new(hostnqn.as_deref(), key, controller);
        let identity = identity.map_err(anyhow::Error::msg)?;
        let identity = identity.with_digests(*hdr_digest, *data_digest);
        let identity = match tls_key.as_deref().map(key_of_tls).transpose()? {
            None => identity,
            Some(key) => identity.with_tls(key),
        };
        let identity = if *concat {
            identity.with_concatenation().map_err(anyhow::Error::msg)?
        } else {
            identity
        };
        identity.assume();
        Ok(())
    }
}
