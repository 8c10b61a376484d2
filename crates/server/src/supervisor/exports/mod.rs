//! Controllers over NBD, whose namespaces are exports: their listening sockets.
//!
//! A holder keeps TCP sockets, so that no other program gets the port while processes of the server
//! follow each other. It does not keep UNIX sockets: connections end with the process anyway, and
//! the next process replaces the file that the former one has left, whose lock the system has
//! released.

#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;

use anyhow::Context;
use api::Protocol;
use api::config::{Controller, NbdAddress};
use engine::SubsystemSlot;
use reactor::message::{NbdListener, NbdListening, Way};
use transport::nbd::Tls;

use super::State;
use super::network::unix_listener;
use crate::reconcile::inventory::find;

impl State {
    /// Serves a controller whose hosts are NBD clients.
    pub(super) fn serve_over_nbd(
        &mut self,
        config: &Controller,
        address: &NbdAddress,
        reactor: usize,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<()> {
        let (way, socket) = self.nbd_listening(config, address)?;
        let new = self.prepare(config, way, reactor, subsystem)?;
        self.add(config, reactor, new)?;
        if let Some(served) = self.controllers.last_mut() {
            served.protocol = Some(Protocol::Nbd);
            served.socket = socket;
        }
        // Only an open drive reports its command set.
        let aim = self.aim();
        let named = aim.namespace.iter();
        for namespace in named.filter(|n| config.namespaces.contains(&n.name)) {
            if self.medium(&namespace.media)?.set().is_some() {
                tracing::warn!(
                    controller = config.name,
                    namespace = namespace.name,
                    "not exported: NBD expresses neither zones nor keys"
                );
            }
        }
        Ok(())
    }

    /// A listening socket for NBD clients; on a UNIX socket also its file, which is to be kept as
    /// long as the controller is served.
    fn nbd_listening(
        &mut self,
        config: &Controller,
        address: &NbdAddress,
    ) -> anyhow::Result<(Way, Option<vfio_user::Listener>)> {
        let tls = self.nbd_tls(config)?;
        let (listener, socket) = match address {
            NbdAddress::Tcp(address) => (NbdListener::Tcp(self.listener(config, *address)?), None),
            NbdAddress::Unix(path) => {
                let (listener, socket) = unix_listener(config, path)?;
                (NbdListener::Unix(listener), Some(socket))
            }
        };
        let clients = config.nbd.clone().unwrap_or_default().clients.into();
        let listening = NbdListening {
            listener,
            clients,
            tls,
        };
        Ok((Way::Nbd(listening), socket))
    }

    /// TLS of a controller, where its clients come through that, with what its files have now.
    fn nbd_tls(&mut self, config: &Controller) -> anyhow::Result<Option<Arc<Tls>>> {
        let nbd = config.nbd.clone().unwrap_or_default();
        if !nbd.has_tls() {
            return Ok(None);
        }
        let handshakes = self.handshakes()?;
        let tls = tls::tls(&nbd, handshakes);
        let tls = tls.with_context(|| format!("TLS of controller {}", config.name))?;
        Ok(Some(Arc::new(tls)))
    }

    /// Reads the files of TLS of a served controller again, for clients that come from now on.
    ///
    /// # Errors
    /// Nothing is changed where a file cannot be used.
    pub(in crate::supervisor) fn renew_tls(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(config) = find(&self.config.controller, name).cloned() else {
            return Ok(());
        };
        let tls = self.nbd_tls(&config)?;
        let mut served = self.controllers.iter();
        let served = served.find(|served| served.name == name);
        if let (Some(tls), Some(served)) = (tls, served) {
            self.reactors[served.reactor].set_nbd_tls(served.slot, tls)?;
        }
        Ok(())
    }
}
