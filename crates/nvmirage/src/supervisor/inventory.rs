//! What is served now, as the control socket tells it.

use controller::subsystem::Allocated;

use super::{
    State,
    media::range_of,
    operate::label,
    subsystems::{Live, id_of},
};
use crate::{
    config,
    control::{
        ControllerStatus, Inventory, IoStatus, MediumStatus, NamespaceStatus, QueuePlacement,
        ReactorStatus,
    },
    reactor::subsystems::View,
};

impl State {
    pub(super) fn inventory(&self) -> anyhow::Result<Inventory> {
        let mut views = Vec::new();
        for live in &self.subsystems {
            views.push((live, self.view(live)?));
        }
        let media = self.config.media.iter().zip(&self.media);
        let reactors = self.config.reactor.iter().zip(&self.reactors);
        Ok(Inventory {
            reactors: reactors
                .map(|(config, handle)| {
                    let counters = handle.counters();
                    ReactorStatus {
                        config: config.clone(),
                        commands: counters.completions.get(),
                        turns: counters.turns.get(),
                        turns_with_work: counters.turns_with_work.get(),
                        busy_ns: counters.busy_ns.get(),
                        spun_ns: counters.spun_ns.get(),
                        slept_ns: counters.slept_ns.get(),
                        sleeps: counters.sleeps.get(),
                        stalls: counters.stalls.get(),
                        stalled_ns: counters.stalled_ns.get(),
                    }
                })
                .collect(),
            media: media
                .map(|(config, open)| MediumStatus {
                    config: config.clone(),
                    bytes: open.medium.size(),
                    description: open.medium.describe(),
                    partitions: open
                        .partitions
                        .as_ref()
                        .map_or(Vec::new(), |store| store.table().partitions().to_vec()),
                    io: open.medium.io_counts().map(|counts| IoStatus {
                        registered: counts.registered,
                        plain: counts.plain,
                    }),
                })
                .collect(),
            namespaces: self.namespaces(&views)?,
            tenants: self.tenant_statuses(),
            controllers: self
                .config
                .controller
                .iter()
                .map(|config| self.controller_status(config, &views))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// Those of the configuration, then those that hosts have made.
    fn namespaces(&self, views: &[(&Live, View)]) -> anyhow::Result<Vec<NamespaceStatus>> {
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
                    blocks: self.extent(config)?.len() / u64::from(config.lba_size),
                    config: config.clone(),
                    subsystem: None,
                    nsid: None,
                    controllers: Vec::new(),
                    made_by_host: false,
                },
            });
        }
        for (live, view) in views {
            for namespace in view.namespaces.iter().filter(|n| n.name.is_none()) {
                let config = config::Namespace {
                    name: label(&live.name, namespace),
                    media: namespace.medium.clone(),
                    range: Some(range_of(namespace)),
                    partition: None,
                    lba_size: config::DEFAULT_LBA_SIZE,
                    nguid: Some(digits(&namespace.namespace.nguid)),
                    eui64: Some(digits(&namespace.namespace.eui64)),
                    tenant: None,
                    weight: None,
                };
                all.push(self.namespace_status(config, live, view, namespace));
            }
        }
        Ok(all)
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
        let mut served = self.controllers.iter();
        let served = served.find(|c| c.name == config.name);
        let placement = served.map_or(Ok(Vec::new()), |served| {
            self.reactors[served.reactor].residences(served.slot)
        })?;
        let placement = placement.into_iter();
        Ok(ControllerStatus {
            placement: placement
                .map(|(queue, reactor)| QueuePlacement { queue, reactor })
                .collect(),
            attached: self.has_host(&config.name),
            doorbell_messages: served.map_or(0, |served| served.doorbell_messages.get()),
            cntlid: id.map(|id| id.0),
            config,
        })
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
