//! Attached hosts: which of them a change would take a controller or namespace from, and whether
//! the request consents to that.

use api::refusal::Kind;
use api::{AssociationStatus, Disconnection, FieldProblem, Protocol, Refusal};

use super::inventory::associations;
use super::mounts::Mounted;
use super::{State, Supervisor};
use crate::reconcile::CONSENT;

/// A host, identified by its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachedHost {
    controller: String,
    process: Option<u32>,
    /// Open files of the mount, where the host is a mount of this server.
    open_files: Option<usize>,
    /// Protocol and number of its hosts, where it may have several.
    network: Option<(Protocol, usize)>,
}

impl AttachedHost {
    /// Details of the host, beside its controller.
    fn about(&self) -> Option<String> {
        if let Some(files) = self.open_files {
            let noun = if files == 1 { "file" } else { "files" };
            return Some(format!("{files} open {noun} of its mount"));
        }
        if let Some((protocol, count)) = self.network.filter(|(_, count)| *count > 0) {
            return Some(match (protocol, count) {
                (Protocol::NvmeTcp, 1) => "1 host over NVMe/TCP".to_owned(),
                (Protocol::NvmeTcp, _) => format!("{count} hosts over NVMe/TCP"),
                (Protocol::Nbd, 1) => "1 NBD client".to_owned(),
                (Protocol::Nbd, _) => format!("{count} NBD clients"),
                (Protocol::VhostUserBlk, _) => "a vhost-user-blk front end".to_owned(),
                (Protocol::Ublk, _) => "a block device of this machine".to_owned(),
            });
        }
        let process = self.process?;
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Some(match name.trim() {
            "" => format!("pid {process}"),
            name => format!("pid {process}, {name}"),
        })
    }
}

impl std::fmt::Display for AttachedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.about() {
            Some(about) => write!(f, "{} ({about})", self.controller),
            None => f.write_str(&self.controller),
        }
    }
}

impl Supervisor {
    /// All attached hosts.
    pub(crate) fn attached_hosts(&self) -> Vec<AttachedHost> {
        let state = self.lock();
        let controllers = state.controllers.iter();
        controllers.filter_map(|c| state.host_of(&c.name)).collect()
    }

    /// Asks the main thread to stop the server. Without `consent`, refuses while hosts are
    /// attached.
    pub(crate) fn stop_unless_used(&self, consent: bool) -> Result<(), Refusal> {
        if !consent {
            refuse(&self.attached_hosts())?;
        }
        self.ask_to_stop();
        Ok(())
    }

    /// Ends connections of hosts over NVMe/TCP, NBD or vhost-user-blk; returns those that were
    /// there.
    pub(crate) fn disconnect(
        &self,
        controller: &str,
        wanted: &Disconnection,
    ) -> Result<Vec<AssociationStatus>, Refusal> {
        let _turn = self.steer();
        self.lock().disconnect(controller, wanted)
    }
}

impl State {
    /// The host of a controller. A mount of this server counts as a host while its files are open.
    pub(super) fn host_of(&self, controller: &str) -> Option<AttachedHost> {
        let mut served = self.controllers.iter();
        let served = served.find(|served| served.name == controller)?;
        let open_files = served.mount.as_ref().map(Mounted::open_files);
        let is_there = match (open_files, &served.keeper) {
            (Some(files), _) => files > 0,
            // A block device that no one uses is no host.
            (None, Some(device)) => device.is_taken(),
            (None, None) => served.presence.is_there(),
        };
        is_there.then(|| AttachedHost {
            controller: controller.to_owned(),
            process: served.presence.process(),
            open_files,
            network: served
                .protocol
                .map(|protocol| (protocol, served.presence.hosts().len())),
        })
    }

    fn disconnect(
        &self,
        controller: &str,
        wanted: &Disconnection,
    ) -> Result<Vec<AssociationStatus>, Refusal> {
        let mut served = self.controllers.iter();
        let served = served.find(|served| served.name == controller);
        let served = served.ok_or_else(|| Refusal::not_found("controller", controller))?;
        check_disconnects(controller, served.protocol)?;
        let what = match served.protocol {
            Some(Protocol::VhostUserBlk) => "namespace",
            _ => "export",
        };
        let mut hosts = associations(served);
        let absent = |host: String| absent(controller, &host);
        match (&wanted.nqn, &wanted.export, wanted.cntlid, wanted.all) {
            (Some(nqn), None, None, false) => {
                hosts.retain(|host| host.nqn == *nqn);
                if hosts.is_empty() {
                    return Err(absent(format!("the NQN {}", nqn.escape_debug())));
                }
            }
            (None, Some(export), None, false) => {
                hosts.retain(|host| host.export.as_ref() == Some(export));
                if hosts.is_empty() {
                    return Err(absent(format!("the {what} {}", export.escape_debug())));
                }
            }
            (None, None, Some(cntlid), false) => {
                hosts.retain(|host| host.cntlid == cntlid);
                if hosts.is_empty() {
                    return Err(absent(format!("the identifier {cntlid:#x}")));
                }
            }
            (None, None, None, true) => {}
            _ => {
                return Err(Refusal::invalid(
                    "name the hosts by exactly one of nqn, export, cntlid and all",
                ));
            }
        }
        let chosen = hosts.iter().map(|host| host.cntlid).collect();
        let ended = self.reactors[served.reactor].disconnect(served.slot, chosen);
        let ended = ended.map_err(|error| Refusal::failed(&error))?;
        hosts.retain(|host| ended.contains(&host.cntlid));
        Ok(hosts)
    }

    /// Refuses to take something from a controller's host without `consent`.
    pub(super) fn spare_host(&self, controller: &str, consent: bool) -> Result<(), Refusal> {
        match self.host_of(controller) {
            Some(host) if !consent => refuse(&[host]),
            _ => Ok(()),
        }
    }
}

/// Checks that hosts of a controller can be disconnected.
fn check_disconnects(controller: &str, protocol: Option<Protocol>) -> Result<(), Refusal> {
    match protocol {
        Some(Protocol::NvmeTcp | Protocol::Nbd | Protocol::VhostUserBlk) => Ok(()),
        Some(Protocol::Ublk) => Err(Refusal::conflict(format!(
            "controller {controller}: its host is a block device of this machine, which cannot be disconnected: unmount it and end the programs that use it, then delete the controller (nvmirage delete controller {controller})"
        ))),
        None => Err(Refusal::conflict(format!(
            "controller {controller} has no hosts over NVMe/TCP, NBD or vhost-user-blk: end its host, or detach it with the controller by detach_hosts=true"
        ))),
    }
}

/// No host of a controller has this.
pub(crate) fn absent(controller: &str, what: &str) -> Refusal {
    Refusal::conflict(format!(
        "controller {controller} has no host with {what}: `nvmirage hosts` lists them"
    ))
}

fn refuse(hosts: &[AttachedHost]) -> Result<(), Refusal> {
    let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let detail = match names.as_slice() {
        [] => return Ok(()),
        [one] => format!("controller {one}: a host is attached: {CONSENT}"),
        all => format!(
            "hosts are attached to controllers {}: end them first, or let them lose their drives with detach_hosts=true",
            all.join(", ")
        ),
    };
    let errors = hosts.iter().map(|host| FieldProblem {
        pointer: None,
        object: Some(format!("controller {}", host.controller)),
        detail: match host.about() {
            Some(about) => format!("a host is attached: {about}"),
            None => "a host is attached".to_owned(),
        },
    });
    Err(Refusal {
        errors: errors.collect(),
        ..Refusal::new(Kind::HostsAttached, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_device_is_deleted_and_not_disconnected() {
        for protocol in [Protocol::NvmeTcp, Protocol::Nbd, Protocol::VhostUserBlk] {
            check_disconnects("c", Some(protocol)).unwrap();
        }
        let refused = check_disconnects("c", Some(Protocol::Ublk)).unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict);
        for part in ["unmount it", "nvmirage delete controller c"] {
            assert!(refused.detail.contains(part), "{}", refused.detail);
        }
        let without = check_disconnects("c", None).unwrap_err();
        assert!(
            without.detail.contains("has no hosts over"),
            "{}",
            without.detail
        );
    }
}
