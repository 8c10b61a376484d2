//! NBD clients: what they can choose, and their controllers.

use std::net::SocketAddr;
use std::sync::Arc;

use engine::ControllerSlot;
use port::time::Time;
use transport::nbd::{Arrival, Client, End, Tls, offer};
use transport::nvme_tcp::Proof;

use super::Reactor;
use crate::hosted::Hosted;
use crate::hosted::exports::Exports;
use crate::hosted::link::Link;
use crate::presence::HostView;

/// Their name in the log.
const CLIENT: &str = "an NBD client";

impl Reactor {
    fn exports_mut(&mut self, index: usize) -> Option<&mut Exports> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::exports_mut)
    }

    /// Has clients that come from now on use this TLS.
    pub(super) fn set_nbd_tls(&mut self, index: usize, tls: Arc<Tls>) {
        if let Some(exports) = self.exports_mut(index) {
            exports.set_tls(tls);
        }
    }

    /// Greets connections that were accepted, and has those that have chosen be clients.
    pub(super) fn take_clients(&mut self, index: usize) {
        let now = self.clock.now();
        if self.exports_mut(index).is_some_and(|it| it.is_to_greet()) {
            self.renew_offers(index);
            if let Some(exports) = self.exports_mut(index) {
                exports.greet(now);
            }
        }
        while let Some((arrival, from)) = self.exports_mut(index).and_then(Exports::take_arrival) {
            if let Err(end) = self.serve_client(index, arrival, from, now)
                && let Some(roster) = self.roster_mut(index)
            {
                roster.counts_mut().refuse(end.name());
            }
        }
    }

    /// Offers the namespaces of an entrance as they are now.
    fn renew_offers(&mut self, index: usize) {
        let entrance = self.engine.controller_mut(ControllerSlot(index));
        let entrance = entrance.map(|entrance| entrance.id());
        let Some(subsystem) = self.roster_mut(index).map(|it| it.subsystem()) else {
            return;
        };
        let subsystem = self.engine.subsystem_mut(subsystem);
        let (Some(entrance), Some(subsystem)) = (entrance, subsystem) else {
            return;
        };
        let generation = subsystem.generation();
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        let exports = hosted.and_then(Hosted::exports_mut);
        if let Some(exports) = exports.filter(|exports| !exports.has_offers_of(generation)) {
            let named = subsystem.named(entrance).into_iter();
            let offers = named.filter_map(|(name, namespace)| offer(&namespace, &name));
            exports.set_offers(generation, offers.collect());
        }
    }

    /// A client that has chosen: it gets a controller. Where it gets none, its socket closes.
    fn serve_client(
        &mut self,
        index: usize,
        arrival: Arrival,
        from: Option<SocketAddr>,
        now: Time,
    ) -> Result<(), End> {
        let slot = self.make_controller(index).map_err(|error| {
            let why = format!("no controller: {error:#}; set fewer `clients`");
            self.tell_of_lack(index, CLIENT, &why, now);
            End::Controller
        })?;
        let controller = self.engine.controller_mut(slot).ok_or(End::Controller)?;
        let host = HostView {
            cntlid: controller.id().0,
            nqn: String::new(),
            export: Some(arrival.export().to_owned()),
            address: from,
            proof: Proof::default(),
            is_secured: arrival.is_secured(),
            io_queues: transport::nbd::QUEUES,
            keep_alive_ms: 0,
            connected: now,
        };
        match Client::new(arrival, controller, now) {
            Ok(client) => {
                self.attach(index, slot, Link::Nbd(Box::new(client)), host, now);
                Ok(())
            }
            Err(error) => {
                self.engine.remove_controller(slot);
                let why = format!(
                    "no memory for its requests: {error}; set fewer `clients`, or raise the limits of memory and of open files"
                );
                self.tell_of_lack(index, CLIENT, &why, now);
                Err(End::Controller)
            }
        }
    }
}
