//! The vfio-user bus against a scripted server: what it puts on the wire, and
//! what it makes of servers that refuse, hang or go away.

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use driver::bus::Bus;
use driver::bus::vfio_user::VfioUser;
use driver::{Device, Doorbells, DriverError, Options};
use memory::{EventFd, HostMemory, Iova};
use vfio_user::message::{DmaMapFlags, IrqAction, IrqData, irq_index, region_index};

use crate::server::{Answer, Event, LONG, VECTORS, doorbell_file, serve, word};

const SHORT: Duration = Duration::from_millis(100);

/// A BAR0 write as it came: offset, bytes, whether posted.
type Written = (u64, Vec<u8>, bool);

#[test]
fn registers_are_read_and_written_where_they_are() {
    let (socket, server) = serve(None, Vec::<Written>::new(), |written, event| match event {
        Event::Read {
            region: region_index::BAR0,
            offset,
            bytes,
        } => {
            for (byte, value) in bytes.iter_mut().zip(u8::try_from(offset).unwrap()..) {
                *byte = value;
            }
            Answer::Done
        }
        Event::Write {
            region: region_index::BAR0,
            offset,
            bytes,
            posted,
        } => {
            written.push((offset, bytes.to_vec(), posted));
            Answer::Done
        }
        _ => Answer::Leave,
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    assert_eq!(bus.read32(0x1c).unwrap(), 0x1f1e_1d1c);
    assert_eq!(bus.read64(0x28).unwrap(), 0x2f2e_2d2c_2b2a_2928);
    bus.write32(0x14, 0x0046_0001).unwrap();
    bus.write64(0x30, 0x1_0000_3000).unwrap();
    bus.ring(0x1008, 5).unwrap();
    // Waited for: the posted write before it has been worked off, too.
    bus.read32(0).unwrap();
    assert!(bus.doorbells().is_none());
    assert_eq!(u32::from(bus.vectors()), VECTORS);
    drop(bus);
    assert_eq!(
        server.join().unwrap(),
        [
            (0x14, vec![1, 0, 0x46, 0], false),
            (0x30, vec![0, 0x30, 0, 0, 1, 0, 0, 0], false),
            (0x1008, vec![5, 0, 0, 0], true),
        ]
    );
}

#[test]
fn configuration_space_is_region_7() {
    let (socket, server) = serve(None, (), |(), event| match event {
        Event::Read {
            region: region_index::CONFIG,
            offset: 0x34,
            bytes,
        } => {
            bytes[0] = 0x40;
            Answer::Done
        }
        Event::Write {
            region: region_index::CONFIG,
            offset: 4,
            bytes: [6, 0],
            posted: false,
        } => Answer::Done,
        _ => Answer::Leave,
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let mut byte = [0];
    bus.config_read(0x34, &mut byte).unwrap();
    assert_eq!(byte, [0x40]);
    bus.config_write(4, &[6, 0]).unwrap();
    drop(bus);
    server.join().unwrap();
}

#[test]
fn mapped_doorbells_are_the_servers_page() {
    let file = doorbell_file();
    let ours = file.try_clone().unwrap();
    let (socket, server) = serve(Some(file), (), |(), _| Answer::Leave);
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let doorbells = bus.doorbells().unwrap();
    assert_eq!(doorbells.start, 0x1000);
    assert_eq!(doorbells.slot(0x1000), Some(0));
    assert_eq!(doorbells.slot(0x100c), Some(3));
    assert_eq!(doorbells.slot(0x1ffc), Some(1023));
    assert_eq!(doorbells.slot(0x2000), None, "not in the page");
    assert_eq!(doorbells.slot(0x0ffc), None, "before it");
    assert_eq!(doorbells.slot(0x1002), None, "no word");
    doorbells.pages.store(3, 0x1234_5678);
    assert_eq!(word(&ours, 0x100c), 0x1234_5678);
    drop(bus);
    server.join().unwrap();
}

#[test]
fn memory_is_shared_for_reading_and_writing_with_its_descriptor() {
    type Maps = Vec<(u64, u64, u64, bool, OwnedFd)>;
    let (socket, server) = serve(None, Maps::new(), |maps, event| match event {
        Event::Map(map, mut fds) => {
            assert_eq!(fds.len(), 1);
            let both = map.flags.contains(DmaMapFlags::READ | DmaMapFlags::WRITE);
            maps.push((map.iova, map.size, map.offset, both, fds.remove(0)));
            Answer::Done
        }
        Event::Unmap(unmap) if (unmap.iova, unmap.size) == (0x7000, 8192) => Answer::Done,
        _ => Answer::Leave,
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let memory = HostMemory::new(8192).unwrap();
    bus.share(&memory, Iova(0x7000)).unwrap();
    bus.unshare(Iova(0x7000), 8192).unwrap();
    drop(bus);
    let maps = server.join().unwrap();
    let [(0x7000, 8192, 0, true, fd)] = &maps[..] else {
        panic!("{maps:?}");
    };
    let buffer = memory.alloc(4, 4).unwrap();
    buffer.store_u32(0, 0xfeed_beef);
    assert_eq!(word(fd, buffer.offset() as u64), 0xfeed_beef);
}

#[test]
fn an_interrupt_wakes_who_waits_and_nobody_else() {
    let (socket, server) = serve(None, Vec::<EventFd>::new(), |fds, event| match event {
        Event::Interrupts(set, mut given) => {
            assert_eq!((set.index, set.start, set.count), (irq_index::MSIX, 2, 1));
            let operation = set.operation().unwrap();
            assert!(matches!(operation, (IrqAction::Trigger, IrqData::EventFd)));
            // Without a descriptor the vector signals no eventfd.
            fds.clear();
            fds.extend(given.drain(..).map(EventFd::from_fd));
            Answer::Done
        }
        Event::Write { .. } => {
            fds.iter().for_each(|fd| fd.signal().unwrap());
            Answer::Done
        }
        _ => Answer::Leave,
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let (mine, other) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    bus.set_interrupt(2, &mine).unwrap();
    assert!(!bus.wait(&mine, Duration::from_millis(1)).unwrap());
    bus.ring(0x1000, 1).unwrap();
    assert!(bus.wait(&mine, LONG).unwrap());
    assert!(!bus.wait(&mine, Duration::ZERO).unwrap(), "it was cleared");
    assert!(!bus.wait(&other, Duration::ZERO).unwrap());
    bus.clear_interrupt(2).unwrap();
    bus.write32(0x1000, 2).unwrap();
    assert!(!bus.wait(&mine, Duration::ZERO).unwrap(), "it is nobody's");
    bus.set_interrupt(2, &other).unwrap();
    bus.write32(0x1000, 3).unwrap();
    assert!(bus.wait(&other, LONG).unwrap());
    drop(bus);
    server.join().unwrap();
}

#[test]
fn a_doorbell_that_would_have_to_wait_for_a_server_is_left_for_later() {
    let (asked, was_asked) = channel();
    let (go_on, told) = channel();
    let (socket, server) = serve(None, Vec::<Written>::new(), move |written, event| {
        match event {
            // It stands still with somebody's question.
            Event::Read { .. } => {
                asked.send(()).unwrap();
                told.recv().unwrap();
            }
            Event::Write {
                offset,
                bytes,
                posted,
                ..
            } => written.push((offset, bytes.to_vec(), posted)),
            _ => return Answer::Leave,
        }
        Answer::Done
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| bus.read32(0).unwrap());
        was_asked.recv().unwrap();
        assert!(!bus.try_ring(0x1008, 5).unwrap());
        go_on.send(()).unwrap();
        asks.join().unwrap();
    });
    assert!(bus.try_ring(0x1008, 6).unwrap());
    drop(bus);
    assert_eq!(
        server.join().unwrap(),
        [(0x1008, vec![6, 0, 0, 0], true)],
        "what was left for later was not written"
    );
}

#[test]
fn doorbells_for_a_server_that_does_not_read_fill_its_socket_and_are_not_waited_for() {
    let (go_on, told) = channel();
    let (socket, server) = serve(None, Vec::new(), move |written, event| {
        match event {
            Event::Write { bytes, .. } => {
                if written.is_empty() {
                    told.recv().unwrap();
                }
                written.push(u32::from_le_bytes(bytes.try_into().unwrap()));
            }
            Event::Read { .. } => {}
            _ => return Answer::Leave,
        }
        Answer::Done
    });
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let mut taken = 0;
    while bus.try_ring(0x1008, taken).unwrap() {
        taken += 1;
        assert!(taken < 1_000_000, "no socket takes so many");
    }
    assert!(!bus.try_ring(0x1008, taken).unwrap());
    go_on.send(()).unwrap();
    let deadline = Instant::now() + LONG;
    while !bus.try_ring(0x1008, taken).unwrap() {
        assert!(Instant::now() < deadline, "it reads again");
        std::thread::yield_now();
    }
    bus.read32(0).unwrap();
    drop(bus);
    assert!(
        server.join().unwrap().into_iter().eq(0..=taken),
        "each once"
    );
}

#[test]
fn a_server_that_goes_away_is_noticed() {
    let leave = |(): &mut (), _: Event<'_>| Answer::Leave;
    let (socket, server) = serve(None, (), leave);
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    bus.check_alive().unwrap();
    assert!(matches!(bus.read32(0), Err(DriverError::Gone)));
    server.join().unwrap();
    assert!(matches!(bus.check_alive(), Err(DriverError::Gone)));
    assert!(matches!(bus.ring(0x1000, 1), Err(DriverError::Gone)));
    // And at once by who waits for an interrupt.
    let begun = Instant::now();
    let eventfd = EventFd::new().unwrap();
    assert!(matches!(bus.wait(&eventfd, LONG), Err(DriverError::Gone)));
    assert!(begun.elapsed() < LONG / 2);
}

#[test]
fn refusals_and_silence_are_told_apart() {
    let (socket, server) = serve(None, 0, |count, _| {
        *count += 1;
        match *count {
            1 => Answer::Refuse(22),
            _ => Answer::Ignore,
        }
    });
    let bus = VfioUser::from_stream(socket, SHORT).unwrap();
    let refused = bus.write32(0x14, 0).unwrap_err();
    assert!(
        matches!(refused, DriverError::Refused { errno: 22, .. }),
        "{refused}"
    );
    let late = bus.read32(0).unwrap_err();
    assert!(matches!(late, DriverError::Timeout { after, .. } if after == SHORT));
    drop(bus);
    server.join().unwrap();
}

/// Values of the registers of a controller that does nothing.
struct Registers {
    cc: u32,
    csts: u32,
    /// CSTS follows CC.EN to this.
    csts_enabled: u32,
}

const CAP_LOW: u32 = 0x0101_00ff; // 256 entries, contiguous, one unit of time
const CAP_HIGH: u32 = 0x0000_0020; // the NVM command set

fn enable(csts_enabled: u32) -> (Result<(), DriverError>, Duration) {
    let registers = Registers {
        cc: 0,
        csts: 0,
        csts_enabled,
    };
    let (socket, server) = serve(None, registers, |registers, event| {
        match event {
            Event::Read {
                region: region_index::BAR0,
                offset,
                bytes,
            } => {
                let cap = u64::from(CAP_HIGH) << 32 | u64::from(CAP_LOW);
                match offset {
                    0 => bytes.copy_from_slice(&cap.to_le_bytes()[..bytes.len()]),
                    0x14 => bytes.copy_from_slice(&registers.cc.to_le_bytes()),
                    0x1c => bytes.copy_from_slice(&registers.csts.to_le_bytes()),
                    _ => bytes.fill(0),
                }
            }
            Event::Write {
                region: region_index::BAR0,
                offset: 0x14,
                bytes,
                ..
            } => {
                registers.cc = u32::from_le_bytes(bytes.try_into().unwrap());
                let on = registers.cc & 1 == 1;
                registers.csts = if on { registers.csts_enabled } else { 0 };
            }
            Event::Read { bytes, .. } => bytes.fill(0),
            _ => {}
        }
        Answer::Done
    });
    let options = Options {
        memory_len: 1 << 20,
        doorbells: Doorbells::Trapped,
        timeout: SHORT,
        ..Options::default()
    };
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let mut device = Device::open(bus, &options).unwrap();
    let begun = Instant::now();
    let result = device.enable();
    let took = begun.elapsed();
    drop(device);
    let registers = server.join().unwrap();
    assert_eq!(registers.cc & 0x00ff_fff1, 0x0046_0001, "as Linux enables");
    (result, took)
}

#[test]
fn a_controller_that_never_gets_ready_is_given_up_after_its_own_bound() {
    let (result, took) = enable(0);
    let error = result.unwrap_err();
    assert!(
        matches!(error, DriverError::Timeout { after, .. } if after == Duration::from_millis(500)),
        "{error}"
    );
    assert!(took >= Duration::from_millis(500), "{took:?}");
}

#[test]
fn a_fatal_status_ends_the_wait_at_once() {
    let (result, _) = enable(0b10);
    assert!(matches!(
        result,
        Err(DriverError::ControllerFatal { csts: 0b10 })
    ));
}

#[test]
fn an_admin_command_that_nobody_answers_times_out() {
    let (result, _) = enable(0b01);
    let error = result.unwrap_err();
    assert!(
        matches!(error, DriverError::Timeout { what: "Identify", after } if after == SHORT),
        "{error}"
    );
}

/// A controller whose RDY stays until its function is reset. It answers no
/// command: what comes after shows how far the driver got.
#[test]
fn a_controller_that_cannot_be_disabled_is_recovered_by_a_function_reset() {
    // whether it is stuck, CC, function resets
    let (socket, server) = serve(None, (true, 1u32, 0), |(stuck, cc, resets), event| {
        match event {
            Event::Read {
                region: region_index::BAR0,
                offset,
                bytes,
            } => {
                let cap = u64::from(CAP_HIGH) << 32 | u64::from(CAP_LOW);
                match offset {
                    0 => bytes.copy_from_slice(&cap.to_le_bytes()[..bytes.len()]),
                    0x14 => bytes.copy_from_slice(&cc.to_le_bytes()),
                    0x1c => {
                        let ready = *stuck || *cc & 1 == 1;
                        bytes.copy_from_slice(&u32::from(ready).to_le_bytes());
                    }
                    _ => bytes.fill(0),
                }
            }
            Event::Write {
                region: region_index::BAR0,
                offset: 0x14,
                bytes,
                ..
            } => *cc = u32::from_le_bytes(bytes.try_into().unwrap()),
            Event::Reset => (*stuck, *cc, *resets) = (false, 0, *resets + 1),
            Event::Read { bytes, .. } => bytes.fill(0),
            _ => {}
        }
        Answer::Done
    });
    let options = Options {
        memory_len: 1 << 20,
        doorbells: Doorbells::Trapped,
        timeout: SHORT,
        ..Options::default()
    };
    let bus = VfioUser::from_stream(socket, LONG).unwrap();
    let mut device = Device::open(bus, &options).unwrap();
    let stuck = device.enable().unwrap_err();
    assert!(
        matches!(stuck, DriverError::Timeout { what, .. } if what.contains("disabling")),
        "{stuck}"
    );
    let silent = device.recover().unwrap_err();
    assert!(
        matches!(
            silent,
            DriverError::Timeout {
                what: "Identify",
                ..
            }
        ),
        "{silent}"
    );
    drop(device);
    let (_, cc, resets) = server.join().unwrap();
    assert_eq!((cc & 1, resets), (1, 1), "enabled, after one reset");
}

#[test]
fn nobody_at_the_socket_is_an_error_that_names_it() {
    let Err(error) = Device::connect("/nowhere/nvme.sock", &Options::default()) else {
        panic!("connected to nobody");
    };
    assert!(error.to_string().contains("/nowhere/nvme.sock"), "{error}");
}
