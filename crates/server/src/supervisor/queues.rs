//! Queues of a controller, for the control API.

use api::Refusal;
use reactor::inspect::{InspectError, Inspector};

use super::Supervisor;
use super::hosts::absent;
use super::inventory::associations;
use crate::observe::Inspected;

/// Hosts over NVMe/TCP, NBD, vhost-user-blk or ublk in one report.
const HOSTS_MAX: usize = 16;

impl Supervisor {
    /// The current state of a controller's queues, with at most `commands` commands of each
    /// submission queue; with a controller identifier, those of that host over NVMe/TCP, NBD,
    /// vhost-user-blk or ublk. The supervisor is not locked meanwhile.
    pub(crate) fn inspect(
        &self,
        name: &str,
        commands: usize,
        cntlid: Option<u16>,
    ) -> Result<Inspected, Refusal> {
        let not_found = || Refusal::not_found("controller", name);
        let (inspector, has_many_hosts, mut known) = {
            let state = self.lock();
            let served = state.controllers.iter().find(|c| c.name == name);
            let served = served.ok_or_else(not_found)?;
            let inspector = Inspector::new(&state.reactors, served.reactor, served.slot);
            let known = associations(served);
            (inspector, served.protocol.is_some(), known)
        };
        let refused = |error: InspectError| match error {
            InspectError::Gone => not_found(),
            InspectError::NoAnswer(_) => Refusal::no_answer(error.to_string()),
        };
        known.retain(|host| cntlid.is_none_or(|cntlid| host.cntlid == cntlid));
        if let Some(cntlid) = cntlid
            && known.is_empty()
        {
            return Err(absent(name, &format!("the identifier {cntlid:#x}")));
        }
        let own = inspector.look(commands).map_err(refused)?;
        let (mut hosts, mut left_out) = (Vec::new(), 0);
        if has_many_hosts {
            let is_known = |cntlid| known.iter().any(|host| host.cntlid == cntlid);
            let found = inspector.look_at_hosts(commands, HOSTS_MAX, is_known);
            let (found, others) = found.map_err(refused)?;
            left_out = others;
            for (cntlid, inspection) in found {
                if let Some(host) = known.iter().find(|host| host.cntlid == cntlid) {
                    hosts.push((host.clone(), inspection));
                }
            }
        }
        Ok(Inspected {
            own,
            has_many_hosts,
            left_out,
            hosts,
        })
    }
}
