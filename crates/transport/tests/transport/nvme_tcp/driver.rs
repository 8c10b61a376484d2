//! Our own driver over TCP, against our own target on another thread.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use driver::bus::nvme_tcp::{NvmeTcp, TcpAddress};
use driver::io::Blocks;
use driver::{Device, DriverError, Options};
use nvme_spec::Status;
use nvme_spec::opcode::NvmOpcode;
use transport::nvme_tcp::TargetConfig;

use super::rig::{self, NSID, Rig, SUBNQN};

/// A target that serves until it is dropped.
pub(super) struct Target {
    port: u16,
    stop: Arc<AtomicBool>,
    /// Ends its association.
    hang_up: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Target {
    fn new() -> Self {
        Self::with(rig::config)
    }

    pub(super) fn with(config: impl FnOnce() -> TargetConfig + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let hang_up = Arc::new(AtomicBool::new(false));
        let (stops, hangs_up) = (stop.clone(), hang_up.clone());
        let thread = thread::spawn(move || {
            let mut rig = Rig::with(config());
            while !stops.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    rig.accept(OwnedFd::from(stream));
                }
                rig.settle();
                if hangs_up.swap(false, Ordering::Relaxed) {
                    drop(rig.association.take());
                }
                thread::yield_now();
            }
        });
        Self {
            port,
            stop,
            hang_up,
            thread: Some(thread),
        }
    }

    pub(super) fn address(&self, nqn: &str) -> TcpAddress {
        format!("127.0.0.1:{}/{nqn}", self.port).parse().unwrap()
    }

    fn open(&self, options: &Options) -> Device<NvmeTcp> {
        let bus = NvmeTcp::connect(&self.address(SUBNQN), options.timeout).unwrap();
        let mut device = Device::open(bus, options).unwrap();
        device.enable().unwrap();
        device
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(panic) = self.thread.take().unwrap().join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 512) as u8 ^ (at as u8).wrapping_mul(13) ^ seed;
    (0..len).map(byte).collect()
}

#[test]
fn a_drive_over_tcp_reads_what_was_written() {
    let target = Target::new();
    let mut device = target.open(&Options::default());
    assert_eq!(device.active_namespaces().unwrap(), [NSID, NSID + 1]);
    let mut queue = device.create_queue_pair(8, false).unwrap();
    for nsid in [NSID, NSID + 1] {
        let namespace = device.namespace(nsid).unwrap();
        let block = namespace.block_len as usize;
        // In the capsule, just so, by R2T, and as much as one command moves.
        for (len, seed) in [(block, 1), (8192, 2), (12288, 3), (128 << 10, 4)] {
            let buffer = device.alloc(len).unwrap();
            let written = pattern(len, seed);
            buffer.write_from(0, &written);
            let blocks = u32::try_from(len / block).unwrap();
            queue.write(&namespace, 5, blocks, &buffer, false).unwrap();
            buffer.fill(0xee);
            queue.read(&namespace, 5, blocks, &buffer).unwrap();
            let mut read = vec![0; len];
            buffer.read_into(0, &mut read);
            assert_eq!(read, written, "{len} bytes of namespace {nsid}");
            queue.compare(&namespace, 5, blocks, &buffer).unwrap();
            buffer.write_from(len - 1, &[!written[len - 1]]);
            let error = queue.compare(&namespace, 5, blocks, &buffer).unwrap_err();
            assert!(
                matches!(error, DriverError::Status { status, .. } if status == Status::COMPARE_FAILURE),
                "{error}"
            );
        }
        queue.flush(nsid).unwrap();
        let scratch = device.alloc(4096).unwrap();
        queue.deallocate(nsid, &[(0, 3), (5, 1)], &scratch).unwrap();
        queue.write_zeroes(&namespace, 5, 2, false).unwrap();
    }
    let beyond = device.namespace(NSID).unwrap();
    let buffer = device.alloc(512).unwrap();
    let error = queue.read(&beyond, beyond.blocks, 1, &buffer).unwrap_err();
    assert!(
        matches!(error, DriverError::Status { status, .. } if status == Status::LBA_OUT_OF_RANGE),
        "{error}"
    );
    device.delete_queue_pair(queue).unwrap();
    assert_eq!(device.queues_in_use(), 0);
}

#[test]
fn many_commands_in_flight_keep_to_their_own_memory() {
    let target = Target::new();
    let mut device = target.open(&Options::default());
    let namespace = device.namespace(NSID).unwrap();
    let mut queues = [31, 7].map(|depth| device.create_queue_pair(depth, false).unwrap());
    let lens: Vec<usize> = (0..200).map(|index| 512 * (1 + index * 7 % 64)).collect();
    for opcode in [NvmOpcode::WRITE, NvmOpcode::READ] {
        let buffers: Vec<_> = lens.iter().map(|len| device.alloc(*len).unwrap()).collect();
        let mut at = vec![0; lens.len()];
        let mut next = 0;
        let mut done = 0;
        while done < lens.len() {
            for queue in &mut queues {
                while let (Some(&len), Some(cid)) = (lens.get(next), queue.next_cid()) {
                    // Each command has a piece of 32 KiB.
                    at[next] = 64 * next as u64 % 4096;
                    if opcode == NvmOpcode::WRITE && next < 64 {
                        buffers[next].write_from(0, &pattern(len, next as u8));
                    }
                    if next >= 64 && opcode == NvmOpcode::WRITE {
                        buffers[next].write_from(0, &pattern(len, (next % 64) as u8));
                    }
                    let blocks = Blocks::new(u32::try_from(len / 512).unwrap()).unwrap();
                    let mut sqe = namespace.transfer(opcode, at[next], blocks, false);
                    let pointer = queue.pointer(cid, &buffers[next], 0, len).unwrap();
                    pointer.put(&mut sqe);
                    queue.submit(sqe).unwrap();
                    next += 1;
                }
                queue.ring().unwrap();
                queue.poll().unwrap();
                while let Some(cqe) = queue.next_completion() {
                    assert!(cqe.status.status().is_success(), "{cqe:?}");
                    done += 1;
                }
            }
        }
        if opcode == NvmOpcode::READ {
            for (index, buffer) in buffers.iter().enumerate() {
                let mut read = vec![0; 512];
                buffer.read_into(0, &mut read);
                assert_eq!(read, pattern(512, (index % 64) as u8), "command {index}");
            }
        }
    }
}

#[test]
fn a_reset_connects_to_another_controller() {
    let target = Target::new();
    let mut device = target.open(&Options::default());
    let namespace = device.namespace(NSID).unwrap();
    let buffer = device.alloc(4096).unwrap();
    for round in 0..3 {
        let mut queue = device.create_queue_pair(4, false).unwrap();
        buffer.write_from(0, &pattern(4096, round));
        queue.write(&namespace, 0, 8, &buffer, true).unwrap();
        if round == 1 {
            device.reset_function().unwrap();
            device.enable().unwrap();
        } else {
            device.reset().unwrap();
        }
        let error = queue.read(&namespace, 0, 1, &buffer).unwrap_err();
        assert!(error.to_string().contains("create a new one"), "{error}");
        let mut queue = device.create_queue_pair(4, false).unwrap();
        buffer.fill(0);
        queue.read(&namespace, 0, 8, &buffer).unwrap();
        let mut read = vec![0; 4096];
        buffer.read_into(0, &mut read);
        assert_eq!(read, pattern(4096, round));
        device.delete_queue_pair(queue).unwrap();
    }
    device.shutdown(driver::Shutdown::Normal).unwrap();
}

#[test]
fn a_queue_with_an_interrupt_waits_for_its_socket() {
    let target = Target::new();
    let options = Options {
        interrupts: true,
        ..Options::default()
    };
    let mut device = target.open(&options);
    let namespace = device.namespace(NSID).unwrap();
    let mut queue = device.create_queue_pair(4, true).unwrap();
    let buffer = device.alloc(4096).unwrap();
    assert_eq!(queue.wait(Duration::from_millis(20)).unwrap(), 0);
    for _ in 0..20 {
        let blocks = Blocks::new(8).unwrap();
        let mut sqe = namespace.transfer(NvmOpcode::READ, 0, blocks, false);
        let cid = queue.next_cid().unwrap();
        queue.pointer(cid, &buffer, 0, 4096).unwrap().put(&mut sqe);
        queue.submit(sqe).unwrap();
        queue.ring().unwrap();
        assert_eq!(queue.wait(Duration::from_secs(10)).unwrap(), 1);
        assert!(queue.next_completion().is_some());
    }
}

#[test]
fn what_a_target_refuses_is_said_in_words() {
    let target = Target::new();
    let timeout = Duration::from_secs(10);
    let error = NvmeTcp::connect(&target.address("nqn.2026-11.t:other"), timeout);
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("no subsystem nqn.2026-11.t:other"),
        "{error}"
    );

    let mut device = target.open(&Options::default());
    let namespace = device.namespace(NSID).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let prps = nvme_spec::Sqe {
        prp1: 1 << 32,
        ..namespace.transfer(NvmOpcode::READ, 0, Blocks::new(1).unwrap(), false)
    };
    let error = queue.run("Read", prps).unwrap_err().to_string();
    assert!(error.contains("has PRPs"), "{error}");
    let Some(cqe) = queue.poll().ok().and_then(|_| queue.next_completion()) else {
        panic!("the command was completed here");
    };
    assert_eq!(cqe.status.status(), Status::INVALID_FIELD_IN_COMMAND);
}

#[test]
fn a_target_that_closes_its_connections_is_gone() {
    let target = Target::new();
    let mut device = target.open(&Options::default());
    let namespace = device.namespace(NSID).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(512).unwrap();
    queue.read(&namespace, 0, 1, &buffer).unwrap();
    target.hang_up.store(true, Ordering::Relaxed);
    let error = loop {
        match queue.read(&namespace, 0, 1, &buffer) {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DriverError::Gone), "{error}");
    assert!(matches!(device.check(), Err(DriverError::Gone)));
}
