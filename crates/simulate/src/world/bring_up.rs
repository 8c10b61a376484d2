//! Setup of a simulation: a drive, a controller that a driver has brought up, and memory.

use std::sync::Arc;

use controller::config::{ControllerConfig, DoorbellMode, Interface};
use controller::{Controller, config};
use driver::{Device, Doorbells, Options};
use engine::{Engine, Mode};
use media::{MAX_DEPTH, Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::{Buffer, DoorbellPages};
use model::{Initial, Kind, Parameters};
use port::ChannelId;
use port::namespace::Namespace;
use port::time::Time;
use subsystem::{Subsystem, SubsystemConfig};

use crate::bus::Virtual;
use crate::fio::TRANSFER_MAX;
use crate::host::{ASIDE_LEN, BLOCK, Data};
use crate::{Error, Plan};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// Memory of hosts other than queues.
fn memory_len(queues: &[u16]) -> usize {
    let rings = |depth: &u16| (usize::from(*depth) + 1) * (64 + 16 + ASIDE_LEN) + 4 * PAGE;
    queues.iter().map(rings).sum::<usize>() + TRANSFER_MAX as usize + (4 << 20)
}

fn controller_config(queues: u16) -> ControllerConfig {
    ControllerConfig {
        name: "simulated".into(),
        vendor_id: config::DEFAULT_VENDOR_ID,
        device_id: config::DEFAULT_DEVICE_ID,
        serial: "SIMULATED".into(),
        model_number: "nvmirage simulated".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2024-01.org.nvmirage:simulated".into(),
        queues,
        queue_depth: config::MAX_QUEUE_DEPTH,
        max_transfer: TRANSFER_MAX as u32,
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

/// The drive, without contents. A drive whose hosts choose its model's operations has no zones or
/// keys either.
pub(super) fn drive(
    parameters: &Parameters,
    size: u64,
    (plan, is_told): (&Plan, bool),
) -> Result<Arc<Medium>, Error> {
    let null = MediumKind::Null { size };
    let kind = match parameters {
        _ if is_told => MediumKind::Scripted { size },
        Parameters::Zones(zones) => MediumKind::Zoned {
            of: Box::new(null),
            zones: ZoneSpec {
                zone_size: zones.zone_size_bytes,
                zone_capacity: zones.zone_capacity_bytes,
                max_open: 0,
                max_active: 0,
                descriptor_extension: 0,
                append_limit: 0,
                random: None,
            },
        },
        _ => null,
    };
    let mut medium = Medium::open(&MediumSpec { kind })?;
    if let Some(state) = &plan.state {
        Medium::restore_timing(&mut medium, parameters.clone(), state)?;
        return Ok(medium);
    }
    if plan.initial != Initial::Fresh && parameters.kind() != Kind::Flash {
        return Err(Error::NotPrepared {
            kind: parameters.kind().name(),
        });
    }
    Medium::begin_timing(&mut medium, parameters.clone(), plan.initial, plan.seed)?;
    Ok(medium)
}

/// A controller with one namespace, all of `medium`, brought up by a driver.
pub(super) fn bring_up(
    medium: &Arc<Medium>,
    size: u64,
    queues: &[u16],
) -> Result<Device<Virtual>, Error> {
    let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
    if count > config::MAX_IO_QUEUES {
        return Err(Error::Workers {
            count: queues.len(),
        });
    }
    let config = controller_config(count);
    let pages = DoorbellPages::new(config.doorbell_slots()).map_err(Error::Memory)?;
    let pages = Arc::new(pages);
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: size / BLOCK,
        lba_shift: BLOCK.ilog2() as u8,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set: medium.set(),
    };
    let mut subsystem = Subsystem::new(SubsystemConfig::with_namespaces(1, [namespace]))?;
    let controller = Controller::new(config, pages.clone(), &mut subsystem)?;
    let mut engine = Engine::new(Mode::Poll, Time(0));
    let drive = medium.channel(MAX_DEPTH).map_err(Error::Channel)?;
    let added = engine.add_channel(ChannelId(0), drive, MAX_DEPTH.into());
    assert!(added.is_ok(), "it is the only one");
    let subsystem = engine.add_subsystem(subsystem);
    let slot = engine.add_controller(controller, subsystem);
    let options = Options {
        memory_len: memory_len(queues),
        doorbells: Doorbells::Mapped,
        // Data pointers are built here.
        transfer_len_max: PAGE as u32,
        command_sets: match medium.set() {
            Some(_) => driver::CommandSets::All,
            None => driver::CommandSets::Nvm,
        },
        ..Options::default()
    };
    let mut device = Device::open(Virtual::new(engine, slot, pages), &options)?;
    device.enable()?;
    Ok(device)
}

/// Memory that the commands of all hosts share, with its PRP list.
pub(super) fn shared_data(device: &Device<Virtual>) -> Result<(Data, [Buffer; 2]), Error> {
    let buffer = device.alloc(TRANSFER_MAX as usize)?;
    let list = device.alloc(PAGE)?;
    let first = device.iova(&buffer).0;
    let pages = TRANSFER_MAX / PAGE as u64;
    for (at, page) in (1..pages).enumerate() {
        list.write_from(at * 8, &(first + page * PAGE as u64).to_le_bytes());
    }
    let data = Data {
        buffer: first,
        list: device.iova(&list).0,
    };
    Ok((data, [buffer, list]))
}
