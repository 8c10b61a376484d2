//! Status of all objects, for the control API.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use api::config::{self, Config, MediumKind};
use api::{
    AssociationStatus, Authentication, ControllerStatus, DriveStatus, FileStatus, HostProcess,
    HostStatus, Inventory, IoStatus, MediumErrors, MediumStatus, NamespaceIdentity,
    NamespaceStatus, Partition, PartitionStatus, QueuePlacement, ReactorStatus, Refusal,
    TenantStatus,
};
use media::{Trouble, Troubles};
use reactor::handle::ReactorHandle;
use reactor::message::View;
use reactor::network::NetworkCounts;
use subsystem::Allocated;
use transport::nvme_tcp::Proof;

use super::places::{label, range_of};
use super::subsystems::{Live, id_of};
use super::{BlockDevice, OpenMedium, Served, State, Supervisor};
use crate::events;
use crate::observe::{ControllerCounts, Snapshot, Stir, now};

impl Supervisor {
    /// The inventory of the server.
    pub(crate) fn inventory(&self) -> Result<Inventory, Refusal> {
        self.lock().inventory().map_err(failed)
    }

    /// Reactors, in the order of the configuration.
    pub(crate) fn reactors(&self) -> Vec<ReactorStatus> {
        self.lock().reactor_statuses()
    }

    /// Media, in order of creation.
    pub(crate) fn media(&self) -> Vec<MediumStatus> {
        self.lock().medium_statuses()
    }

    /// Partitions of all media.
    pub(crate) fn partitions(&self) -> Vec<PartitionStatus> {
        self.lock().partition_statuses()
    }

    /// Namespaces, in order of creation, then those that hosts created.
    pub(crate) fn namespaces(&self) -> Result<Vec<NamespaceStatus>, Refusal> {
        let state = self.lock();
        let views = state.views().map_err(failed)?;
        state.namespaces(&views).map_err(failed)
    }

    /// Tenants, in order of creation.
    pub(crate) fn tenants(&self) -> Vec<TenantStatus> {
        self.lock().tenant_statuses()
    }

    /// Controllers, in order of creation.
    pub(crate) fn controllers(&self) -> Result<Vec<ControllerStatus>, Refusal> {
        let state = self.lock();
        let views = state.views().map_err(failed)?;
        state.controller_statuses(&views).map_err(failed)
    }

    /// Marks of activity, without a message to a reactor.
    pub(crate) fn stir(&self) -> Stir {
        let state = self.lock();
        let of = |reactor: &ReactorHandle| reactor.counters().completions.get();
        Stir {
            completions: state.reactors.iter().map(of).sum(),
            events: events::all().last(),
        }
    }

    /// All counters.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Refusal> {
        self.lock().snapshot().map_err(failed)
    }

    /// Hosts, in the order of their controllers.
    pub(crate) fn hosts(&self) -> Result<Vec<HostStatus>, Refusal> {
        let controllers = self.controllers()?.into_iter();
        let attached = controllers.filter(|controller| controller.attached);
        Ok(attached
            .map(|controller| HostStatus {
                process: controller.host.as_ref().map(|host| host.process),
                command: controller.host.and_then(|host| host.command),
                controller: controller.config.name,
                listen: controller.config.listen,
                hosts: controller.hosts,
                disk: controller.disk,
                placement: controller.placement,
            })
            .collect())
    }

    /// The current configuration of one object, including changes since the start.
    pub(crate) fn config_of<T>(&self, of: impl FnOnce(&Config) -> Option<T>) -> Option<T> {
        of(&self.lock().config)
    }
}

fn failed(error: anyhow::Error) -> Refusal {
    Refusal::failed(&error)
}

impl State {
    fn inventory(&self) -> anyhow::Result<Inventory> {
        let views = self.views()?;
        Ok(Inventory {
            process: self.process(),
            reactors: self.reactor_statuses(),
            media: self.medium_statuses(),
            namespaces: self.namespaces(&views)?,
            tenants: self.tenant_statuses(),
            controllers: self.controller_statuses(&views)?,
            traces: self.trace_statuses(),
        })
    }

    fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let Inventory {
            process,
            reactors,
            mut media,
            namespaces,
            tenants,
            controllers,
            ..
        } = self.inventory()?;
        self.look_at_media(&mut media)?;
        let mut networks = self.network_counts()?;
        let mut counts = Vec::new();
        for (at, reactor) in self.reactors.iter().enumerate() {
            counts.extend(reactor.counts()?.into_iter().map(|(slot, c)| (at, slot, c)));
        }
        let counted = |name: &str| {
            let served = self.controllers.iter().find(|c| c.name == name)?;
            let mut counts = counts.iter();
            let found = counts.find(|(at, slot, _)| (*at, *slot) == (served.reactor, served.slot));
            found.map(|(_, _, counted)| counted.clone())
        };
        let controllers = controllers.into_iter().map(|status| ControllerCounts {
            counted: counted(&status.config.name).unwrap_or_default(),
            latencies: OnceCell::new(),
            network: networks.remove(&status.config.name),
            status,
        });
        let (time, day) = now();
        Ok(Snapshot {
            time,
            day,
            process,
            controllers: controllers.collect(),
            reactors,
            media,
            namespaces,
            tenants,
        })
    }

    /// Counters of the hosts over NVMe/TCP, NBD, vhost-user-blk and ublk, by controller.
    pub(super) fn network_counts(&self) -> anyhow::Result<BTreeMap<String, NetworkCounts>> {
        let mut all = BTreeMap::new();
        for (at, reactor) in self.reactors.iter().enumerate() {
            let here = || {
                let served = self.controllers.iter();
                served.filter(|served| served.reactor == at && served.protocol.is_some())
            };
            if here().next().is_none() {
                continue;
            }
            for (slot, counts) in reactor.network_counts()? {
                if let Some(served) = here().find(|served| served.slot == slot) {
                    all.insert(served.name.clone(), counts);
                }
            }
        }
        Ok(all)
    }

    /// Every subsystem, with its current state from its reactor.
    pub(super) fn views(&self) -> anyhow::Result<Vec<(&Live, View)>> {
        let live = self.subsystems.iter();
        live.map(|live| Ok((live, self.view(live)?))).collect()
    }

    fn reactor_statuses(&self) -> Vec<ReactorStatus> {
        let reactors = self.config.reactor.iter().zip(&self.reactors).enumerate();
        reactors
            .map(|(reactor, (config, handle))| {
                let counters = handle.counters();
                ReactorStatus {
                    reactor,
                    config: config.clone(),
                    commands: counters.completions.get(),
                    turns: counters.turns.get(),
                    turns_with_work: counters.turns_with_work.get(),
                    busy_ns: counters.busy_ns.get(),
                    spinning_ns: counters.spun_ns.get(),
                    asleep_ns: counters.slept_ns.get(),
                    sleeps: counters.sleeps.get(),
                    stalls: counters.stalls.get(),
                    stalled_ns: counters.stalled_ns.get(),
                }
            })
            .collect()
    }

    fn medium_statuses(&self) -> Vec<MediumStatus> {
        let media = self.config.media.iter().zip(&self.media);
        media
            .map(|(config, open)| MediumStatus {
                config: config.clone(),
                bytes: open.medium.size(),
                description: open.medium.describe(),
                partitions: open.partitions().to_vec(),
                preallocated_bytes: open.medium.preallocated(),
                io: open.medium.io_counts().map(|counts| IoStatus {
                    registered: counts.registered,
                    plain: counts.plain,
                }),
                file: open.medium.file_counts().map(|counts| FileStatus {
                    submissions: counts.submissions,
                    flushes: counts.flushes,
                }),
                errors: open.medium.troubles().map_or(Vec::new(), |t| errors(t)),
                drive: open.medium.drive_counts().map(drive_status),
                model: None,
                zones: None,
                pairs: None,
            })
            .collect()
    }

    fn partition_statuses(&self) -> Vec<PartitionStatus> {
        let of_medium = |open: &OpenMedium| {
            let partitions = open.partitions().iter();
            let status = |partition: &Partition| PartitionStatus {
                media: open.name.clone(),
                partition: partition.clone(),
                namespace: self
                    .namespace_of_partition(&open.name, &partition.name)
                    .map(|namespace| namespace.name.clone()),
            };
            partitions.map(status).collect::<Vec<_>>()
        };
        self.media.iter().flat_map(of_medium).collect()
    }

    fn controller_statuses(
        &self,
        views: &[(&Live, View)],
    ) -> anyhow::Result<Vec<ControllerStatus>> {
        let configs = self.config.controller.iter();
        configs
            .map(|config| self.controller_status(config, views))
            .collect()
    }

    /// The running configuration. Namespaces that hosts created are not part of it.
    pub(super) fn configuration(&self) -> anyhow::Result<config::Config> {
        let inventory = self.inventory()?;
        let mut config = self.config.clone();
        let namespaces = inventory.namespaces.into_iter();
        let of_operators: Vec<_> = namespaces.filter(|n| !n.made_by_host).collect();
        let is_named = |name: &String| of_operators.iter().any(|n| n.config.name == *name);
        for (config, now) in config.controller.iter_mut().zip(inventory.controllers) {
            config.namespaces = now.config.namespaces;
            config.namespaces.retain(is_named);
        }
        config.namespace = of_operators.into_iter().map(|n| n.config).collect();
        Ok(config)
    }

    /// Namespaces, as [`Supervisor::namespaces`] returns them.
    pub(super) fn namespaces_now(&self) -> anyhow::Result<Vec<NamespaceStatus>> {
        self.namespaces(&self.views()?)
    }

    /// Namespaces of the configuration, then those that hosts created.
    pub(super) fn namespaces(
        &self,
        views: &[(&Live, View)],
    ) -> anyhow::Result<Vec<NamespaceStatus>> {
        let mut all = Vec::new();
        for config in &self.config.namespace {
            let found = views.iter().find_map(|(live, view)| {
                let mut namespaces = view.namespaces.iter();
                let named = |n: &&Allocated| n.name.as_ref() == Some(&config.name);
                namespaces.find(named).map(|n| (*live, view, n))
            });
            all.push(match found {
                Some((live, view, namespace)) => {
                    self.namespace_status(config.clone(), live, view, namespace)
                }
                None => NamespaceStatus {
                    blocks: if self.has_keys(&config.media) {
                        0
                    } else {
                        self.extent(config)?.len() / u64::from(config.lba_size)
                    },
                    config: config.clone(),
                    subsystem: None,
                    nsid: None,
                    controllers: Vec::new(),
                    made_by_host: false,
                    identity: None,
                },
            });
        }
        for (live, view) in views {
            for namespace in view.namespaces.iter().filter(|n| n.name.is_none()) {
                let (name, medium) = (label(&live.name, namespace), namespace.medium.clone());
                let config = config::Namespace {
                    range: Some(range_of(namespace)),
                    nguid: Some(digits(&namespace.namespace.nguid)),
                    eui64: Some(digits(&namespace.namespace.eui64)),
                    ..config::Namespace::new(name, medium)
                };
                all.push(self.namespace_status(config, live, view, namespace));
            }
        }
        Ok(all)
    }

    /// Whether a medium has keys and values, and so no blocks.
    pub(super) fn has_keys(&self, medium: &str) -> bool {
        let mut media = self.config.media.iter();
        let found = media.find(|config| config.name == medium);
        found.is_some_and(|config| config.kind() == MediumKind::KeyValue)
    }

    fn namespace_status(
        &self,
        mut config: config::Namespace,
        live: &Live,
        view: &View,
        namespace: &Allocated,
    ) -> NamespaceStatus {
        config.lba_size = 1 << namespace.namespace.lba_shift;
        let served = self.config.controller.iter();
        let attached = served.filter(|c| {
            let id = id_of(view, &c.name).filter(|_| c.subsystem() == live.name);
            id.is_some_and(|id| namespace.attached.contains(id))
        });
        NamespaceStatus {
            config,
            blocks: namespace.namespace.blocks,
            subsystem: Some(live.name.clone()),
            nsid: Some(namespace.nsid()),
            controllers: attached.map(|c| c.name.clone()).collect(),
            made_by_host: namespace.name.is_none(),
            identity: Some(NamespaceIdentity {
                nguid: digits(&namespace.namespace.nguid),
                eui64: digits(&namespace.namespace.eui64),
                uuid: uuid(namespace.namespace.nguid, namespace.namespace.eui64),
            }),
        }
    }

    fn controller_status(
        &self,
        config: &config::Controller,
        views: &[(&Live, View)],
    ) -> anyhow::Result<ControllerStatus> {
        let mut config = config.clone();
        let mut views = views.iter();
        let view = views.find(|(live, _)| live.name == config.subsystem());
        let id = view.and_then(|(_, view)| id_of(view, &config.name));
        if let (Some((live, view)), Some(id)) = (view, id) {
            let attached = view.namespaces.iter().filter(|n| n.attached.contains(id));
            config.namespaces = attached.map(|n| label(&live.name, n)).collect();
        }
        config.subsystem = Some(config.subsystem().to_owned());
        // clients have other folders than the server
        config.listen = config.listen.absolute(std::path::absolute)?;
        let mut served = self.controllers.iter();
        let served = served.find(|c| c.name == config.name);
        let placement = served.map_or(Ok(Vec::new()), |served| {
            self.reactors[served.reactor].residences(served.slot)
        })?;
        let placement = placement.into_iter();
        let keeper = served.and_then(|served| served.keeper.as_ref());
        let device = keeper.map(BlockDevice::view);
        Ok(ControllerStatus {
            placement: placement
                .map(|(queue, reactor)| QueuePlacement { queue, reactor })
                .collect(),
            identity: self.identity_of(config.subsystem()),
            attached: self.has_host(&config.name),
            host: served
                .and_then(|served| served.presence.process())
                .map(|process| HostProcess {
                    process,
                    command: machine::files::command_of(process),
                }),
            hosts: served.map_or_else(Vec::new, associations),
            disk: device.as_ref().and_then(|device| device.disk.clone()),
            device: device.map(|device| device.state),
            doorbell_messages: served.map_or(0, |served| served.doorbell_messages.get()),
            cntlid: id.map(|id| id.0),
            config,
        })
    }
}

/// The hosts of a controller over NVMe/TCP, NBD, vhost-user-blk or ublk.
pub(super) fn associations(served: &Served) -> Vec<AssociationStatus> {
    let (now, _) = now();
    let hosts = served.presence.hosts().into_iter();
    hosts
        .map(|host| AssociationStatus {
            protocol: served.protocol.unwrap_or_default(),
            nqn: host.nqn,
            export: host.export,
            address: host.address,
            authentication: match host.proof {
                Proof::Unasked => Authentication::None,
                Proof::Pending | Proof::Concatenated => Authentication::Pending,
                Proof::Host => Authentication::Host,
                Proof::Both => Authentication::Both,
            },
            tls: host.is_secured,
            cntlid: host.cntlid,
            io_queues: host.io_queues,
            keep_alive_ms: host.keep_alive_ms,
            connected_ms: now.0.saturating_sub(host.connected.0) / 1_000_000,
        })
        .collect()
}

impl OpenMedium {
    fn partitions(&self) -> &[Partition] {
        let store = self.partitions.as_ref();
        store.map_or(&[], |store| store.table().partitions())
    }
}

fn drive_status(counts: media::DriveCounts) -> DriveStatus {
    DriveStatus {
        present: counts.is_there,
        commands: counts.commands,
        interrupted: counts.interrupted,
        queues_given_up: counts.queues_given_up,
        resets: counts.resets,
        losses: counts.losses,
        temperature_kelvin: Some(counts.temperature).filter(|kelvin| *kelvin > 0),
        available_spare_percent: counts.available_spare,
        percentage_used: counts.percentage_used,
    }
}

/// The causes that have occurred.
fn errors(troubles: &Troubles) -> Vec<MediumErrors> {
    let all = Trouble::ALL.into_iter().zip(troubles.look());
    all.filter(|(_, look)| look.count > 0 || look.is_current)
        .map(|(trouble, look)| MediumErrors {
            cause: trouble.name().to_owned(),
            count: look.count,
            current: look.is_current,
            os_error: look
                .os_error
                .map(|errno| std::io::Error::from_raw_os_error(errno).to_string()),
        })
        .collect()
}

/// The UUID of a namespace in the form of RFC 9562.
fn uuid(nguid: [u8; 16], eui64: [u8; 8]) -> Option<String> {
    let digits = digits(&subsystem::identity::uuid(nguid, eui64)?);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    Some(parts.join("-"))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
