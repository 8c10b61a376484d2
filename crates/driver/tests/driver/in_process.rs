//! The driver against our own controller, in process: every doorbell mode, the
//! helpers, and what happens when things go wrong.

use std::time::Duration;

use controller::config::DoorbellMode;
use driver::bus::Bus;
use driver::io::Blocks;
use driver::{Doorbells, DriverError, Full, Options, QueuePair, Shutdown};
use nvme_spec::event::{ErrorInformation, EventType};
use nvme_spec::features::{FeatureId, Select};
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::registers::CSTS;
use nvme_spec::{Sqe, Status};
use port::Cause;

use crate::rig::{Manner, QUEUE_ENTRIES, RamDevice, open, options, with_ram};

fn enabled(mode: DoorbellMode, doorbells: Doorbells) -> RamDevice {
    let options = Options {
        doorbells,
        ..options()
    };
    let mut device = open(mode, &options).unwrap();
    device.enable().unwrap();
    device
}

fn device() -> RamDevice {
    enabled(DoorbellMode::Mapped, Doorbells::Auto)
}

/// Each way of ringing that the controller's configuration allows.
fn every_way() -> Vec<RamDevice> {
    [
        (DoorbellMode::Mapped, Doorbells::Mapped),
        (DoorbellMode::Mapped, Doorbells::Trapped),
        (DoorbellMode::Unmapped, Doorbells::Shadow),
        (DoorbellMode::Unmapped, Doorbells::Trapped),
    ]
    .into_iter()
    .map(|(mode, doorbells)| {
        let device = enabled(mode, doorbells);
        assert_eq!(device.doorbells(), Some(doorbells));
        device
    })
    .collect()
}

fn status(result: Result<impl Sized, DriverError>) -> Status {
    match result {
        Err(DriverError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn the_controller_says_who_it_is() {
    let mut device = device();
    let identity = device.identify_controller().unwrap();
    assert_eq!(&identity.sn[..6], b"S0001 ");
    assert_eq!(&identity.mn[..8], b"a model ");
    assert_eq!(device.active_namespaces().unwrap(), [1, 2]);
    let one = device.namespace(1).unwrap();
    assert_eq!((one.blocks, one.block_len), (16384, 512));
    let two = device.namespace(2).unwrap();
    assert_eq!((two.blocks, two.block_len), (2048, 4096));
    assert!(matches!(
        device.namespace(3),
        Err(DriverError::Unsupported(_))
    ));
    assert_eq!(device.queues_max(), 4);
    assert_eq!(device.depth_max(), QUEUE_ENTRIES - 1);
    assert_eq!(device.transfer_len_max(), 4 << 20);
}

#[test]
fn auto_takes_the_fastest_doorbells_there_are() {
    let mapped = enabled(DoorbellMode::Mapped, Doorbells::Auto);
    assert_eq!(mapped.doorbells(), Some(Doorbells::Mapped));
    let shadow = enabled(DoorbellMode::Unmapped, Doorbells::Auto);
    assert_eq!(shadow.doorbells(), Some(Doorbells::Shadow));
}

#[test]
fn doorbells_that_are_not_there_are_refused_with_what_to_do() {
    for (mode, doorbells) in [
        (DoorbellMode::Mapped, Doorbells::Shadow),
        (DoorbellMode::Unmapped, Doorbells::Mapped),
    ] {
        let options = Options {
            doorbells,
            ..options()
        };
        let error = open(mode, &options).unwrap().enable().unwrap_err();
        assert!(
            error.to_string().contains("serve with doorbells"),
            "{error}"
        );
    }
}

#[test]
fn what_is_written_reads_back_by_every_way_of_ringing() {
    for mut device in every_way() {
        let namespace = device.namespace(1).unwrap();
        let (out, back) = (device.alloc(8192).unwrap(), device.alloc(8192).unwrap());
        // The second queue has the first one's number, and begins at 0 again.
        for base in [0, 31] {
            let mut queue = device.create_queue_pair(8, false).unwrap();
            assert_eq!(queue.qid(), 1);
            // More commands than entries: both rings wrap, with both phases.
            for round in base..base + 31u8 {
                out.fill(round + 1);
                let lba = u64::from(round) * 16;
                queue.write(&namespace, lba, 16, &out, false).unwrap();
                queue.read(&namespace, lba, 16, &back).unwrap();
                let mut bytes = [0; 8192];
                back.read_into(0, &mut bytes);
                assert_eq!(bytes, [round + 1; 8192]);
            }
            device.delete_queue_pair(queue).unwrap();
        }
        with_ram(&device, |ram| {
            assert_eq!(ram.bytes[61 * 8192], 62);
            assert_eq!(ram.count, [62, 62, 0, 0]);
        });
    }
}

#[test]
fn every_transfer_size_finds_its_bytes() {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(2, false).unwrap();
    let (out, back) = (
        device.alloc(4 << 20).unwrap(),
        device.alloc(4 << 20).unwrap(),
    );
    let mut pattern = vec![0; 4 << 20];
    for (at, byte) in pattern.iter_mut().enumerate() {
        *byte = (at / 512 * 7 + at % 251).to_le_bytes()[0];
    }
    out.write_from(0, &pattern);
    // One page, two, a list, a full list, chained lists: 4 MiB is 1024 pages.
    for blocks in [1, 8, 9, 16, 17, 511, 4096, 4104, 4112, 8192] {
        queue.write(&namespace, 3, blocks, &out, false).unwrap();
        back.fill(0xee);
        queue.read(&namespace, 3, blocks, &back).unwrap();
        let len = usize::try_from(blocks).unwrap() * 512;
        let mut bytes = vec![0; 4 << 20];
        back.read_into(0, &mut bytes);
        assert!(bytes[..len] == pattern[..len], "{blocks} blocks");
        assert!(
            bytes[len..].iter().all(|&byte| byte == 0xee),
            "{blocks} blocks"
        );
    }
    let refused = queue.write(&namespace, 0, 8193, &out, false);
    assert!(matches!(refused, Err(DriverError::Unsupported(_))));
}

#[test]
fn the_other_commands_do_what_they_say() {
    let mut device = device();
    let namespace = device.namespace(2).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(8192).unwrap();
    buffer.fill(9);
    queue.write(&namespace, 10, 2, &buffer, true).unwrap();
    queue.compare(&namespace, 10, 2, &buffer).unwrap();
    queue.write_zeroes(&namespace, 11, 1, true).unwrap();
    let differs = status(queue.compare(&namespace, 10, 2, &buffer));
    assert_eq!(differs, Status::COMPARE_FAILURE);
    queue.flush(2).unwrap();
    queue.deallocate(2, &[(10, 1), (20, 5)], &buffer).unwrap();
    queue.read(&namespace, 10, 2, &buffer).unwrap();
    let mut bytes = [1; 8192];
    buffer.read_into(0, &mut bytes);
    assert_eq!(bytes, [0; 8192]);
    let past = status(queue.read(&namespace, 2047, 2, &buffer));
    assert_eq!(past, Status::LBA_OUT_OF_RANGE);
    with_ram(&device, |ram| ram.fault = Some(Cause::ReadFailed));
    let failed = status(queue.read(&namespace, 0, 1, &buffer));
    assert_eq!(failed, Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn commands_in_flight_complete_once_each_in_any_order() {
    for mut device in every_way() {
        with_ram(&device, |ram| ram.manner = Manner::LaterInReverse);
        let namespace = device.namespace(1).unwrap();
        let mut queue = device.create_queue_pair(16, false).unwrap();
        let buffer = device.alloc(512).unwrap();
        let nlb = Blocks::new(1).unwrap();
        let mut sqe = namespace.transfer(NvmOpcode::READ, 0, nlb, false);
        sqe.prp1 = device.iova(&buffer).0;
        for _ in 0..20 {
            let mut given: Vec<u16> = (0..16).map(|_| queue.submit(sqe).unwrap()).collect();
            assert_eq!(queue.submit(sqe), Err(Full));
            assert_eq!(queue.in_flight(), 16);
            queue.ring().unwrap();
            let mut looks = 0;
            while queue.in_flight() > 0 {
                looks += 1;
                assert!(looks < 1000, "{given:?} never complete");
                queue.poll_up_to(5).unwrap();
                while let Some(cqe) = queue.next_completion() {
                    assert!(cqe.status.status().is_success());
                    let at = given.iter().position(|&cid| cid == cqe.cid);
                    given.remove(at.expect("each command once"));
                }
            }
            assert!(given.is_empty());
        }
    }
}

fn take_all<B: Bus>(queue: &mut QueuePair<B>) {
    queue.poll().unwrap();
    while queue.next_completion().is_some() {}
}

/// Reads in batches of every size up to the depth; how many doorbells were
/// register writes. A controller that was not woken shows as a panic.
fn read_in_batches(device: &mut RamDevice, batches: u16) -> u64 {
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let buffer = device.alloc(512).unwrap();
    let mut sqe = namespace.transfer(NvmOpcode::READ, 0, Blocks::new(1).unwrap(), false);
    sqe.prp1 = device.iova(&buffer).0;
    let before = device.bus().doorbell_writes();
    for batch in 0..batches {
        for _ in 0..=batch % 8 {
            queue.submit(sqe).unwrap();
        }
        queue.ring().unwrap();
        let mut looks = 0;
        while queue.in_flight() > 0 {
            take_all(&mut queue);
            looks += 1;
            assert!(looks < 1000, "batch {batch} was never seen");
        }
        // Time to fall asleep, where it does.
        for _ in 0..10 {
            take_all(&mut queue);
        }
    }
    let after = device.bus().doorbell_writes();
    device.delete_queue_pair(queue).unwrap();
    after - before
}

#[test]
fn a_sleeping_controller_is_woken_by_the_shadow_doorbell_that_passes_event_idx() {
    let mut device = enabled(DoorbellMode::Unmapped, Doorbells::Shadow);
    device.bus().set_sleeps(true);
    let writes = read_in_batches(&mut device, 200);
    // Each batch finds it asleep. The head of the completion queue, never
    // waited for, rings only as it passes the EventIdx it began with: once in
    // each of the 100 rounds of nine entries.
    assert!((200..=200 + 101).contains(&writes), "{writes}");
}

#[test]
fn a_controller_that_is_awake_is_spared_register_writes() {
    let mut device = enabled(DoorbellMode::Unmapped, Doorbells::Shadow);
    let writes = read_in_batches(&mut device, 200);
    // As above, for tail and head: EventIdx stays what it was at first.
    assert!(writes <= 2 * 101, "{writes}");
    let mut trapped = enabled(DoorbellMode::Unmapped, Doorbells::Trapped);
    trapped.bus().set_sleeps(true);
    assert_eq!(read_in_batches(&mut trapped, 200), 2 * 200);
}

#[test]
fn an_interrupt_ends_a_wait() {
    let options = Options {
        interrupts: true,
        ..options()
    };
    let mut device = open(DoorbellMode::Mapped, &options).unwrap();
    device.enable().unwrap();
    with_ram(&device, |ram| ram.manner = Manner::Never);
    let mut queue = device.create_queue_pair(4, true).unwrap();
    queue
        .submit(Sqe {
            opcode: NvmOpcode::FLUSH.0,
            nsid: 1,
            ..Sqe::default()
        })
        .unwrap();
    queue.ring().unwrap();
    let before = device.bus().now_ns();
    let timeout = Duration::from_millis(2);
    assert_eq!(queue.wait(timeout).unwrap(), 0);
    assert!(device.bus().now_ns() - before >= 2_000_000);
    with_ram(&device, |ram| ram.manner = Manner::AtOnce);
    assert_eq!(queue.wait(Duration::from_secs(1)).unwrap(), 1);
    let mut polled = device.create_queue_pair(4, false).unwrap();
    assert!(matches!(
        polled.wait(timeout),
        Err(DriverError::Unsupported(_))
    ));
}

#[test]
fn a_command_that_hangs_times_out_and_a_reset_starts_over() {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(4096).unwrap();
    with_ram(&device, |ram| ram.manner = Manner::Never);
    let late = queue.read(&namespace, 0, 8, &buffer).unwrap_err();
    assert!(
        matches!(late, DriverError::Timeout { what: "Read", .. }),
        "{late}"
    );
    // Beside one in flight no helper can tell its own completion.
    assert!(matches!(queue.flush(1), Err(DriverError::Unsupported(_))));
    device.check().unwrap();
    device.reset().unwrap();
    with_ram(&device, |ram| ram.manner = Manner::AtOnce);
    let mut again = device.create_queue_pair(4, false).unwrap();
    assert_eq!(again.qid(), 1);
    again.read(&namespace, 0, 8, &buffer).unwrap();
    // The queue pair from before the reset is not the controller's any more,
    // and its doorbell belongs to the new one.
    queue.submit(Sqe::default()).unwrap();
    assert!(matches!(queue.ring(), Err(DriverError::Unsupported(_))));
    device.delete_queue_pair(queue).unwrap();
    again.flush(1).unwrap();
}

#[test]
fn a_fatal_status_is_reported() {
    let mut device = device();
    device
        .bus()
        .with_controller(|controller| controller.fail(controller::Failure::MemoryLost));
    device.bus().turn();
    assert!(matches!(
        device.check(),
        Err(DriverError::ControllerFatal { .. })
    ));
    let error = device.identify_controller().unwrap_err();
    assert!(
        matches!(error, DriverError::ControllerFatal { .. }),
        "{error}"
    );
    // And a reset is the way out.
    device.recover().unwrap();
    device.check().unwrap();
    device.identify_controller().unwrap();
}

#[test]
fn shutting_down_completes_and_enabling_brings_it_back() {
    for how in [Shutdown::Normal, Shutdown::Abrupt] {
        let mut device = device();
        device.create_queue_pair(4, false).unwrap();
        device.shutdown(how).unwrap();
        let csts = device.bus().read32(CSTS).unwrap();
        assert_eq!(csts >> 2 & 0b11, 0b10, "SHST: processing complete");
        device.enable().unwrap();
        device.create_queue_pair(4, false).unwrap();
    }
}

#[test]
fn a_function_reset_forgets_everything() {
    let mut device = device();
    device.create_queue_pair(4, false).unwrap();
    device.reset_function().unwrap();
    assert_eq!(device.bus().read32(CSTS).unwrap() & 1, 0);
    assert!(matches!(
        device.create_queue_pair(4, false),
        Err(DriverError::Unsupported(_))
    ));
    device.enable().unwrap();
    device.create_queue_pair(4, false).unwrap();
}

#[test]
fn queue_pairs_are_limited_and_can_be_had_again() {
    let mut device = device();
    let queues: Vec<_> = (0..4)
        .map(|_| device.create_queue_pair(4, false).unwrap())
        .collect();
    assert!(matches!(
        device.create_queue_pair(4, false),
        Err(DriverError::Unsupported(_))
    ));
    for queue in queues {
        device.delete_queue_pair(queue).unwrap();
    }
    for depth in [0, QUEUE_ENTRIES] {
        assert!(device.create_queue_pair(depth, false).is_err());
    }
    let deepest = device.create_queue_pair(QUEUE_ENTRIES - 1, false).unwrap();
    assert_eq!((deepest.qid(), deepest.depth()), (1, QUEUE_ENTRIES - 1));
}

#[test]
fn logs_and_features_are_read() {
    let mut device = device();
    let mut smart = [0; 512];
    device
        .get_log_page(
            LogPageId::SMART_HEALTH_INFORMATION,
            0xffff_ffff,
            0,
            &mut smart,
        )
        .unwrap();
    let kelvin = u16::from_le_bytes([smart[1], smart[2]]);
    assert!((273..400).contains(&kelvin), "{kelvin} K");
    let old = device
        .get_feature(FeatureId::VOLATILE_WRITE_CACHE, Select::CURRENT, 0, 0)
        .unwrap();
    assert_eq!(old & 1, 1);
    let unknown = device.get_feature(FeatureId(0xbf), Select::CURRENT, 0, 0);
    assert_eq!(status(unknown), Status::INVALID_FIELD_IN_COMMAND);
    assert!(
        device
            .get_log_page(LogPageId::ERROR_INFORMATION, 0, 0, &mut [0; 3])
            .is_err()
    );
}

#[test]
fn a_wild_doorbell_is_an_event() {
    let mut device = device();
    let queue = device.create_queue_pair(4, false).unwrap();
    device.request_event().unwrap();
    assert_eq!(device.event_requests(), 1);
    assert_eq!(device.poll_event().unwrap(), None);
    // The tail of queue 1, beyond its five entries.
    device.bus().ring(0x1008, 77).unwrap();
    let event = (0..1000).find_map(|_| device.poll_event().unwrap());
    let event = event.expect("an event");
    assert_eq!(event.aet(), EventType::ERROR);
    assert_eq!(
        event.aei(),
        ErrorInformation::INVALID_DOORBELL_WRITE_VALUE.0
    );
    assert_eq!(device.event_requests(), 0);
    // Admin commands go on beside it.
    device.request_event().unwrap();
    device.identify_controller().unwrap();
    drop(queue);
}

#[test]
fn event_requests_stop_at_the_controllers_limit() {
    let mut device = device();
    let limit = device.identify_controller().unwrap().aerl_z + 1;
    for _ in 0..limit {
        device.request_event().unwrap();
    }
    assert!(matches!(
        device.request_event(),
        Err(DriverError::Unsupported(_))
    ));
    device.identify_controller().unwrap();
}

#[test]
fn an_abort_is_answered() {
    let mut device = device();
    with_ram(&device, |ram| ram.manner = Manner::Never);
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let cid = queue
        .submit(Sqe {
            opcode: NvmOpcode::FLUSH.0,
            nsid: 1,
            ..Sqe::default()
        })
        .unwrap();
    queue.ring().unwrap();
    assert!(!device.abort(1, 99).unwrap(), "no such command");
    let aborted = device.abort(1, cid).unwrap();
    with_ram(&device, |ram| ram.manner = Manner::AtOnce);
    assert!((0..1000).any(|_| queue.poll().unwrap() == 1));
    let cqe = queue.next_completion().unwrap();
    assert_eq!(cqe.cid, cid);
    let status = cqe.status.status();
    assert_eq!(status.is_success(), !aborted, "{status}");
}
