//! The handle of a reactor: the rest of the program sends messages to its thread.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use api::config::Controller;
use controller::counters::{Counted, ReactorCounters};
use controller::flight::TraceSpec;
use engine::{ControllerSlot, EngineId, Mode, MoveError, SubsystemSlot};
use machine::clock::Clock;
use machine::cpu;
use media::{Duty, Medium, ZoneLoss, ZoneLossError};
use memory::{Bell, EventFd};
use nvme_spec::Status;
use port::ChannelId;
use subsystem::OperatorRequest;
use transport::nbd;
use transport::nvme_tcp::{Access, DiscoveryLog, Tls};

use super::answer::{Answer, answer};
use super::devices::Devices;
use super::looks::LookAsked;
use super::message::{
    ANSWER_TIMEOUT, Address, MAILBOX_LEN, Message, Movable, NewController, NewSubsystem, Pulse,
    View,
};
use super::run::Reactor;
use super::tenants::TenantNews;
use crate::maps::{Taken, Wanted};
use crate::network::NetworkCounts;
use crate::snapshots::Ask;

/// A running reactor.
#[derive(Debug)]
pub struct ReactorHandle {
    address: Address,
    mode: Mode,
    counters: Arc<ReactorCounters>,
    thread: Option<JoinHandle<()>>,
}

impl ReactorHandle {
    /// Starts a reactor, pinned to `cpu` if one is given.
    pub fn start(index: usize, cpu: Option<u32>, mode: Mode) -> anyhow::Result<Self> {
        let (sender, receiver) = memory::sync::mailbox::channel(MAILBOX_LEN);
        let bell = Arc::new(Bell::new());
        let wake = EventFd::new()?;
        let (its_bell, its_wake) = (bell.clone(), wake.clone());
        let address = Address::new(sender, bell, wake);
        let its_address = address.clone();
        let counters = Arc::<ReactorCounters>::default();
        let its_counters = counters.clone();
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("reactor {index}"))
            .spawn(move || {
                // created on its own thread, because its poller must stay there
                let made = cpu.map_or(Ok(()), cpu::pin).and_then(|()| {
                    let clock = Clock::of_process();
                    let (bell, wake) = (its_bell, its_wake);
                    let id = EngineId(index as u16);
                    Reactor::new(
                        id,
                        mode,
                        clock,
                        receiver,
                        its_address,
                        bell,
                        wake,
                        its_counters,
                    )
                });
                match made {
                    Ok(mut reactor) => {
                        // the starter waits for exactly this message
                        let _ = started.send(Ok(()));
                        reactor.run();
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            })?;
        start
            .recv()
            .context("a reactor ended while it started")?
            .with_context(|| match cpu {
                Some(cpu) => format!(
                    "reactor {index} cannot start on CPU {cpu}: remove `cpu`, or name one that this process may use"
                ),
                None => format!("reactor {index} cannot start"),
            })?;
        Ok(ReactorHandle {
            address,
            mode,
            counters,
            thread: Some(thread),
        })
    }

    /// Its wait policy.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its counters.
    pub fn counters(&self) -> &ReactorCounters {
        &self.counters
    }

    /// Its mailbox.
    pub(crate) fn address(&self) -> Address {
        self.address.clone()
    }

    /// A probe for any thread.
    pub fn pulse(&self) -> Pulse {
        Pulse(self.address.clone())
    }

    /// Requests to this reactor from the thread of a controller's block device.
    pub fn devices(&self, slot: ControllerSlot) -> Devices {
        Devices::new(self.address(), slot)
    }

    fn send(&self, message: Message) -> anyhow::Result<()> {
        let sent = self.address.tell(message);
        sent.map_err(|_| anyhow!("the reactor does not take messages"))
    }

    fn ask<T>(&self, message: impl FnOnce(Answer<T>) -> Message) -> anyhow::Result<T> {
        let (answer, answered) = answer();
        self.send(message(answer))?;
        answered
            .within(ANSWER_TIMEOUT)
            .context("the reactor did not respond within 10 s")
    }

    /// Sends it the addresses of all reactors, in the order of this list.
    pub fn meet(&self, all: &[ReactorHandle]) -> anyhow::Result<()> {
        let all = all.iter().map(|reactor| reactor.address.clone());
        self.send(Message::Peers(all.collect()))
    }

    /// Changes the timing parameters of a medium that is open here.
    ///
    /// # Errors
    /// The parameters do not fit the drive's shape; the reactor does not answer.
    pub fn retune(&self, channel: ChannelId, timing: model::Parameters) -> anyhow::Result<()> {
        let timing = Box::new(timing);
        Ok(self.ask(|answer| Message::Retune(channel, timing, answer))??)
    }

    /// Changes the state of a lost zone on a medium that is open here, and notifies its hosts.
    pub fn lose_zone(
        &self,
        channel: ChannelId,
        zone: u32,
        to: ZoneLoss,
    ) -> anyhow::Result<Result<(), ZoneLossError>> {
        self.ask(|answer| Message::LoseZone(channel, zone, to, answer))
    }

    /// A function with which any thread can request the timing model's state of a medium that is
    /// open here.
    pub fn asks_for_state(&self, channel: ChannelId) -> Ask {
        let address = self.address.clone();
        Box::new(move |asked| {
            let sent = address.tell(Message::Snapshot(channel, asked));
            sent.map_err(|_| anyhow!("the reactor does not take messages"))
        })
    }

    /// Opens a channel to a medium under that id, unless it is open.
    pub fn open_channel(&self, medium: Arc<Medium>, id: ChannelId) -> anyhow::Result<()> {
        Ok(self.ask(|answer| Message::OpenChannel(medium, id, answer))??)
    }

    /// Sets the reactors for queues that the controller's hosts create from now on.
    pub fn spread(&self, slot: ControllerSlot, over: &[usize]) -> anyhow::Result<()> {
        let over = over.iter().map(|reactor| EngineId(*reactor as u16));
        self.ask(|answer| Message::Spread(slot, over.collect(), answer))
    }

    /// Moves a queue to another reactor, on which the media of its controller's subsystem are open.
    pub fn move_queue(&self, queue: Movable, to: usize) -> anyhow::Result<Result<(), MoveError>> {
        self.ask(|answer| Message::Move(queue, EngineId(to as u16), answer))
    }

    /// The completion queues of a controller, each with the reactor that serves it.
    pub fn residences(&self, slot: ControllerSlot) -> anyhow::Result<Vec<(u16, usize)>> {
        let all = self.ask(|answer| Message::Residences(slot, answer))?;
        Ok(all.into_iter().map(|(id, at)| (id, at.0.into())).collect())
    }

    /// The controllers of a controller's hosts over NVMe/TCP, NBD clients or front end, with their
    /// identifiers.
    pub fn associations(&self, slot: ControllerSlot) -> anyhow::Result<Vec<(u16, ControllerSlot)>> {
        self.ask(|answer| Message::Associations(slot, answer))
    }

    /// The counters of every controller on this reactor.
    pub fn counts(&self) -> anyhow::Result<Vec<(ControllerSlot, Counted)>> {
        self.ask(Message::Counts)
    }

    /// Counters of the hosts of each controller over NVMe/TCP, NBD or vhost-user-blk.
    pub fn network_counts(&self) -> anyhow::Result<Vec<(ControllerSlot, NetworkCounts)>> {
        self.ask(Message::NetworkCounts)
    }

    /// The requested state of media; `None` for a medium that is no longer open here.
    pub fn look(&self, media: Vec<(ChannelId, Wanted)>) -> anyhow::Result<Vec<Option<Taken>>> {
        self.ask(|answer| Message::Look(LookAsked { media, answer }))
    }

    /// Starts or stops tracing a controller's commands.
    pub fn trace(&self, slot: ControllerSlot, spec: Option<TraceSpec>) -> anyhow::Result<()> {
        self.ask(|answer| Message::Trace(slot, spec, Some(answer)))
    }

    /// Applies the live keys of a controller's configuration.
    pub fn configure(&self, slot: ControllerSlot, keys: Arc<Controller>) -> anyhow::Result<()> {
        self.ask(|answer| Message::Configure(slot, keys, answer))
    }

    /// A function with which any thread can stop tracing a controller. It must be called before the
    /// controller's slot is reused.
    pub fn ends_trace(&self, slot: ControllerSlot) -> Box<dyn FnOnce() + Send> {
        let address = self.address.clone();
        Box::new(move || {
            if address.tell(Message::Trace(slot, None, None)).is_err() {
                tracing::error!("a reactor does not take messages: a trace costs on");
            }
        })
    }

    /// Tells which subsystems hosts can reach over a network.
    pub fn set_discovery(&self, log: Arc<DiscoveryLog>) -> anyhow::Result<()> {
        self.send(Message::Discovery(log))
    }

    /// Waits until the reactor has handled all earlier messages.
    pub fn answer(&self) -> anyhow::Result<()> {
        self.ask(Message::Answer)
    }

    /// Updates tenants and assignments.
    pub fn tell_tenants(&self, news: Vec<TenantNews>) -> anyhow::Result<()> {
        self.ask(|answer| Message::Tenants(news, answer))
    }

    /// Closes a medium's channel, which no controller uses any more.
    pub fn close_channel(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseChannel(medium, answer))
    }

    /// Gives the reactor a duty for the completion queues of a drive, before channels are opened.
    pub fn open_relay(&self, medium: Arc<Medium>, duty: Duty) -> anyhow::Result<()> {
        Ok(self.ask(|answer| Message::OpenRelay(medium, duty, answer))??)
    }

    /// Takes the reactor's duties for a drive away, after channels are closed.
    pub fn close_relays(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseRelays(medium, answer))
    }

    /// Adds a subsystem, without controllers.
    pub fn add_subsystem(&self, new: NewSubsystem) -> anyhow::Result<SubsystemSlot> {
        Ok(self.ask(|answer| Message::AddSubsystem(Box::new(new), answer))??)
    }

    /// Removes a subsystem without controllers. Returns whether its last changes were saved.
    pub fn end_subsystem(&self, slot: SubsystemSlot) -> anyhow::Result<bool> {
        self.ask(|answer| Message::EndSubsystem(slot, answer))
    }

    /// Passes an operator's request to a subsystem. When this returns, the hosts concerned have
    /// been notified.
    pub fn request(
        &self,
        slot: SubsystemSlot,
        request: OperatorRequest,
    ) -> anyhow::Result<Result<u32, Status>> {
        self.ask(|answer| Message::Request(slot, request, answer))
    }

    /// The current state of a subsystem.
    pub fn view(&self, slot: SubsystemSlot) -> anyhow::Result<View> {
        self.ask(|answer| Message::View(slot, answer))
    }

    /// Adds a controller.
    pub fn add_controller(&self, new: NewController) -> anyhow::Result<ControllerSlot> {
        self.ask(|answer| Message::AddController(Box::new(new), answer))?
    }

    /// Whether every controller that goes on from a former process has executed again what it may:
    /// at first what only writes.
    pub fn has_replayed(&self) -> anyhow::Result<bool> {
        self.ask(Message::HasReplayed)
    }

    /// Lets those controllers execute copies again.
    pub fn release_copies(&self) -> anyhow::Result<()> {
        self.ask(Message::ReleaseCopies)
    }

    /// Lets those controllers fetch commands.
    pub fn release(&self) -> anyhow::Result<()> {
        self.ask(Message::Release)
    }

    /// Has all its controllers fetch no more commands, or go on.
    pub fn set_paused(&self, paused: bool) -> anyhow::Result<()> {
        self.ask(|answer| Message::SetPaused(paused, answer))
    }

    /// Whether the queues that live here are paused and have no commands.
    pub fn is_drained(&self) -> anyhow::Result<bool> {
        self.ask(Message::IsDrained)
    }

    /// Ends a controller's hosts over NVMe/TCP, NBD clients or front end whose controllers have
    /// these identifiers; returns those that were there.
    pub fn disconnect(&self, slot: ControllerSlot, cntlids: Vec<u16>) -> anyhow::Result<Vec<u16>> {
        self.ask(|answer| Message::Disconnect(slot, cntlids, answer))
    }

    /// Ends all hosts over NVMe/TCP, all NBD clients and all front ends, and accepts none until
    /// [`Self::set_paused`] ends the pause. [`Self::has_parted`] says when they have closed their
    /// connections; those of NBD clients and front ends are closed at once.
    pub fn disconnect_all(&self) -> anyhow::Result<()> {
        self.ask(Message::DisconnectAll)
    }

    /// Whether no connection of a host over NVMe/TCP is to close: each does within a bound.
    pub fn has_parted(&self) -> anyhow::Result<bool> {
        self.ask(Message::HasParted)
    }

    /// Has other hosts over NVMe/TCP be allowed at a controller. Those that are allowed no longer,
    /// or have not proved what they have to, are disconnected.
    pub fn set_access(
        &self,
        slot: ControllerSlot,
        access: Access,
        tls: Option<Tls>,
    ) -> anyhow::Result<()> {
        self.ask(|answer| Message::SetAccess(slot, access, tls, answer))
    }

    /// Has NBD clients of a controller that come from now on use this TLS. Those that are connected
    /// stay.
    pub fn set_nbd_tls(&self, slot: ControllerSlot, tls: Arc<nbd::Tls>) -> anyhow::Result<()> {
        self.ask(|answer| Message::SetNbdTls(slot, tls, answer))
    }

    /// Begins a removal; a later call of [`Self::remove_controller`] waits for its end.
    pub fn begin_to_remove(&self, slot: ControllerSlot) -> anyhow::Result<()> {
        let (answer, _) = answer();
        self.send(Message::RemoveController(slot, answer))
    }

    /// Detaches a controller's host and removes the controller.
    pub fn remove_controller(&self, slot: ControllerSlot) -> anyhow::Result<()> {
        self.ask(|answer| Message::RemoveController(slot, answer))
    }
}

impl Drop for ReactorHandle {
    fn drop(&mut self) {
        if self.send(Message::Stop).is_ok()
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a reactor panicked; its controllers are no longer served");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use controller::ControllerConfig;
    use subsystem::SubsystemConfig;

    use super::*;
    use crate::hosted::target::tests::{listening, pdu, template};
    use crate::message::Way;
    use crate::presence::Presence;

    /// An operator may create a controller before another process has taken over.
    #[test]
    fn a_target_that_is_added_when_hosts_have_parted_accepts_none() {
        let reactor = ReactorHandle::start(0, None, Mode::Interrupt).unwrap();
        let config = SubsystemConfig::with_namespaces(1, []);
        let new = NewSubsystem {
            config,
            keeper: None,
        };
        let subsystem = reactor.add_subsystem(new).unwrap();
        reactor.disconnect_all().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let keys = br#"{"name":"t","listen":"nvme-tcp:127.0.0.1:4420"}"#;
        let new = NewController {
            config: ControllerConfig {
                max_transfer: 8192,
                ..template()
            },
            subsystem,
            way: Way::NvmeTcp(listening(listener, None)),
            presence: Arc::new(Presence::new(|_, _| ())),
            doorbell_messages: Arc::default(),
            keys: Arc::new(api::from_json(keys).unwrap()),
            custody: None,
        };
        reactor.add_controller(new).unwrap();
        let mut host = TcpStream::connect(address).unwrap();
        host.write_all(&pdu(0, 128, 128)).unwrap();
        let timeout = Some(Duration::from_millis(200));
        host.set_read_timeout(timeout).unwrap();
        let early = host.read(&mut [0]).unwrap_err().kind();
        assert_eq!(early, ErrorKind::WouldBlock);
        // The other process does not take over.
        reactor.set_paused(false).unwrap();
        let timeout = Some(Duration::from_secs(10));
        host.set_read_timeout(timeout).unwrap();
        host.read_exact(&mut [0; 128]).unwrap();
    }

    #[test]
    fn a_slot_that_is_no_host_of_the_controller_has_nothing_to_move() {
        let reactor = ReactorHandle::start(0, None, Mode::Interrupt).unwrap();
        let moved = |slot| {
            let queue = Movable {
                controller: ControllerSlot(0),
                slot: ControllerSlot(slot),
                cqid: 1,
            };
            reactor.move_queue(queue, 0).unwrap()
        };
        // The configured controller itself has no such queue; another slot is another's.
        assert_eq!(moved(0), Err(MoveError::NoQueue(1)));
        assert_eq!(moved(1), Err(MoveError::Gone(1)));
    }
}
