//! Controllers over vhost-user-blk, whose one namespace is the virtio disk of one guest: their
//! listening sockets.
//!
//! A socket is the process's, as that of NBD clients: a front end connects again to the next
//! process, which replaces the file that the former one has left, and goes on with the requests
//! that the front end has kept.

#[cfg(test)]
mod tests;

use std::path::Path;

use ::port::namespace::CommandSet;
use anyhow::Context;
use api::config::Controller;
use api::{Protocol, Refusal};
use engine::SubsystemSlot;
use nvme_spec::opcode::Csi;
use reactor::message::{VhostListening, Way};

use super::State;
use super::network::unix_listener;
use super::places::label;
use super::subsystems::id_of;

impl State {
    /// Serves a controller whose host is a vhost-user-blk front end.
    pub(super) fn serve_over_vhost_user_blk(
        &mut self,
        config: &Controller,
        path: &Path,
        reactor: usize,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<()> {
        // Only an open drive reports its command set.
        let aim = self.aim();
        for namespace in aim
            .namespace
            .iter()
            .filter(|n| config.namespaces.contains(&n.name))
        {
            let set = self.medium(&namespace.media)?.set();
            let refused = set.and_then(|set| not_a_disk(&namespace.name, &*set));
            if let Some(text) = refused {
                anyhow::bail!("namespaces: {text}");
            }
        }
        let (listener, socket) = unix_listener(config, path)?;
        let way = Way::VhostUserBlk(VhostListening {
            listener,
            rings: config.queues,
        });
        let new = self.prepare(config, way, reactor, subsystem)?;
        self.add(config, reactor, new)?;
        let served = self.controllers.last_mut();
        let served = served.context("it was just added")?;
        served.protocol = Some(Protocol::VhostUserBlk);
        served.socket = Some(socket);
        Ok(())
    }

    /// Checks that a controller over vhost-user-blk can get a namespace: it has no other one, and
    /// the namespace has blocks, with zones or without.
    pub(super) fn check_disk(&self, name: &str, controller: &str) -> Result<(), Refusal> {
        self.check_single(
            (name, controller),
            "vhost-user-blk serves exactly one",
            "a controller with its own socket",
            not_a_disk,
        )
    }

    /// Checks that a controller can get a namespace, which has one only: it has no other one, and
    /// `refusal` has no text against a command set beside NVM.
    pub(super) fn check_single(
        &self,
        (name, controller): (&str, &str),
        rule: &str,
        other_way: &str,
        refusal: fn(&str, &dyn CommandSet) -> Option<String>,
    ) -> Result<(), Refusal> {
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        for (live, view) in self.views().map_err(failed)? {
            let id = id_of(&view, controller);
            for namespace in &view.namespaces {
                let other = label(&live.name, namespace);
                let is_attached = id.is_some_and(|id| namespace.attached.contains(id));
                if is_attached && other != name {
                    return Err(Refusal::conflict(format!(
                        "controller `{controller}` has namespace `{other}`, and {rule}: `nvmirage detach {other} {controller}` first, or create {other_way} for `{name}`"
                    )));
                }
                let set = namespace.namespace.set.as_deref();
                let refused = set
                    .filter(|_| other == name)
                    .and_then(|set| refusal(name, set));
                if let Some(text) = refused {
                    return Err(Refusal::conflict(text));
                }
            }
        }
        let mut configured = self.config.namespace.iter();
        if let Some(config) = configured.find(|n| n.name == name) {
            let medium = self.medium(&config.media).map_err(failed)?;
            let set = medium.set();
            if let Some(text) = set.as_deref().and_then(|set| refusal(name, set)) {
                return Err(Refusal::conflict(text));
            }
        }
        Ok(())
    }
}

/// Why a namespace with a command set beside NVM cannot be a virtio disk, if it cannot.
fn not_a_disk(namespace: &str, set: &dyn CommandSet) -> Option<String> {
    let is_zoned = set.csi() == Csi::ZONED_NAMESPACE;
    (!is_zoned).then(|| {
        format!(
            "namespace `{namespace}` has keys or vendor commands, which vhost-user-blk cannot express: serve it over NVMe"
        )
    })
}
