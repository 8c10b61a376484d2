//! The subsystems of a reactor: requests by operators, records to be saved, and removal.

use engine::{Engine, SubsystemSlot};
use nvme_spec::Status;
use subsystem::{OperatorRequest, Subsystem};

use super::answer::Answer;
use super::message::{Address, Keep, Message, NewSubsystem, View};

/// A subsystem on this reactor.
#[derive(Debug)]
struct Hosted {
    slot: SubsystemSlot,
    name: String,
    keeper: Option<Box<dyn Keep>>,
    /// Unanswered requests: token, and where to answer.
    requests: Vec<(u64, Answer<Result<u32, Status>>)>,
    requests_taken: u64,
    /// Where to report its removal.
    ending: Option<Answer<bool>>,
    /// Whether the last record could not be saved.
    lost: bool,
}

/// All subsystems of a reactor.
#[derive(Debug)]
pub(crate) struct Subsystems {
    hosted: Vec<Hosted>,
    /// Number of subsystems that wait for their removal.
    ending: usize,
    /// Where the keeper reports that a record is saved.
    address: Address,
}

impl Subsystems {
    pub(crate) fn new(address: Address) -> Self {
        Subsystems {
            hosted: Vec::new(),
            ending: 0,
            address,
        }
    }

    fn find(&mut self, slot: SubsystemSlot) -> Option<&mut Hosted> {
        self.hosted.iter_mut().find(|hosted| hosted.slot == slot)
    }

    pub(crate) fn add(
        &mut self,
        engine: &mut Engine<media::Channel>,
        new: NewSubsystem,
    ) -> Result<SubsystemSlot, subsystem::ConfigError> {
        let NewSubsystem { mut config, keeper } = new;
        config.keeping = keeper.is_some();
        let name = config.name.clone();
        let slot = engine.add_subsystem(Subsystem::new(config)?);
        self.hosted.push(Hosted {
            slot,
            name,
            keeper,
            requests: Vec::new(),
            requests_taken: 0,
            ending: None,
            lost: false,
        });
        Ok(slot)
    }

    /// Passes an operator's request to a subsystem.
    pub(crate) fn request(
        &mut self,
        engine: &mut Engine<media::Channel>,
        slot: SubsystemSlot,
        request: OperatorRequest,
        answer: Answer<Result<u32, Status>>,
    ) {
        // if the subsystem is gone, dropping the answer's sender notifies the caller
        if let (Some(hosted), Some(subsystem)) = (self.find(slot), engine.subsystem_mut(slot)) {
            hosted.requests_taken += 1;
            let token = hosted.requests_taken;
            hosted.requests.push((token, answer));
            subsystem.request(token, request);
        }
    }

    /// The current state of a subsystem.
    pub(crate) fn view(engine: &mut Engine<media::Channel>, slot: SubsystemSlot) -> View {
        let mut subsystems = engine.subsystems_mut();
        let found = subsystems.find(|(other, _)| *other == slot);
        let view = found.map(|(_, subsystem)| {
            let record = subsystem.record();
            View {
                // the record would lack namespaces that are being created
                namespaces: subsystem.directory().iter().cloned().collect(),
                controllers: record.controllers,
                deleted: record.deleted,
            }
        });
        view.unwrap_or_default()
    }

    /// A record was saved, or could not be.
    pub(crate) fn ended(
        &mut self,
        engine: &mut Engine<media::Channel>,
        slot: SubsystemSlot,
        version: u64,
        is_kept: bool,
    ) {
        let Some(subsystem) = engine.subsystem_mut(slot) else {
            return;
        };
        if is_kept {
            subsystem.kept(version);
        } else {
            subsystem.keep_failed();
        }
        if let Some(hosted) = self.find(slot) {
            hosted.lost = !is_kept;
        }
    }

    /// Removes a subsystem without controllers, once its changes are saved or saving has failed.
    pub(crate) fn end(&mut self, slot: SubsystemSlot, answer: Answer<bool>) {
        let mut hosted = self.hosted.iter_mut();
        match hosted.find(|hosted| hosted.slot == slot) {
            Some(hosted) => {
                if hosted.ending.replace(answer).is_none() {
                    self.ending += 1;
                }
                hosted.lost = false;
            }
            None => answer.send(true),
        }
    }

    /// Whether [`Subsystems::look`] would find something to do.
    pub(crate) fn has_news(&self, engine: &mut Engine<media::Channel>) -> bool {
        let news = |s: &Subsystem| s.has_record() || s.has_operator_answer();
        let ending = self.hosted.iter().any(|h| h.ending.is_some() && h.lost);
        ending || engine.subsystems_mut().any(|(_, s)| news(s))
    }

    /// Passes on answers and records, and completes removals; whether it did anything.
    pub(crate) fn look(&mut self, engine: &mut Engine<media::Channel>) -> bool {
        if !engine.take_subsystem_news() && self.ending == 0 {
            return false;
        }
        let mut worked = false;
        let mut over = Vec::new();
        for (slot, subsystem) in engine.subsystems_mut() {
            let Some(hosted) = self.hosted.iter_mut().find(|h| h.slot == slot) else {
                continue;
            };
            while let Some((token, result)) = subsystem.take_operator_answer() {
                hosted.answer(token, result);
                worked = true;
            }
            if hosted.ending.is_some() && (subsystem.is_kept() || hosted.lost) {
                over.push((slot, subsystem.is_kept()));
            } else if let Some((version, record)) = subsystem.take_record() {
                worked = true;
                if let Some(keeper) = &hosted.keeper {
                    let address = self.address.clone();
                    let ended = move |is_kept| {
                        if address.tell(Message::Kept(slot, version, is_kept)).is_err() {
                            tracing::error!("a reactor does not take messages");
                        }
                    };
                    keeper.keep(&hosted.name, record, Box::new(ended));
                }
            }
        }
        for (slot, is_kept) in over {
            worked = true;
            engine.remove_subsystem(slot);
            let Some(at) = self.hosted.iter().position(|h| h.slot == slot) else {
                continue;
            };
            if let Some(answer) = self.hosted.swap_remove(at).ending {
                self.ending -= 1;
                answer.send(is_kept);
            }
        }
        worked
    }
}

impl Hosted {
    fn answer(&mut self, token: u64, result: Result<u32, Status>) {
        let at = self.requests.iter().position(|(other, _)| *other == token);
        if let Some(at) = at {
            let (_, answer) = self.requests.swap_remove(at);
            answer.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use engine::Mode;
    use memory::{Bell, EventFd};
    use port::time::Time;
    use subsystem::{Allocated, ControllerId, ControllerRecord, Record, SubsystemConfig};

    use super::*;
    use crate::answer::{Answered, answer};
    use crate::message::Ended;

    /// Saves at once, and counts.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<AtomicUsize>);

    impl Keep for Kept {
        fn keep(&self, subsystem: &str, _: Record, ended: Ended) {
            assert_eq!(subsystem, "s");
            self.0.fetch_add(1, Ordering::Relaxed);
            ended(true);
        }
    }

    /// The saving side of a reactor, without a reactor's thread.
    struct Rig {
        engine: Engine<media::Channel>,
        subsystems: Subsystems,
        mailbox: memory::sync::mailbox::Receiver<Message>,
        slot: SubsystemSlot,
        kept: Kept,
    }

    fn rig() -> Rig {
        let kept = Kept::default();
        let (sender, mailbox) = memory::sync::mailbox::channel(4);
        let address = Address::new(sender, Arc::new(Bell::new()), EventFd::new().unwrap());
        let mut subsystems = Subsystems::new(address);
        let mut engine = Engine::new(Mode::Interrupt, Time(0));
        let config = SubsystemConfig {
            name: "s".to_owned(),
            controllers: vec![ControllerRecord::new("c", ControllerId(1))],
            deleted: vec!["x".to_owned()],
            ..SubsystemConfig::with_namespaces(4, [])
        };
        let keeper: Option<Box<dyn Keep>> = Some(Box::new(kept.clone()));
        let new = NewSubsystem { config, keeper };
        let slot = subsystems.add(&mut engine, new).unwrap();
        Rig {
            engine,
            subsystems,
            mailbox,
            slot,
            kept,
        }
    }

    impl Rig {
        /// Creates a namespace of one block.
        fn change(&mut self) -> Answered<Result<u32, Status>> {
            let (answer, answered) = answer();
            let namespace = port::namespace::Namespace {
                nsid: 1,
                channel: port::ChannelId(0),
                start: 0,
                blocks: 1,
                lba_shift: 12,
                nguid: [0; 16],
                eui64: [0; 8],
                traits: port::MediumTraits::default(),
                restrictions: None,
                set: None,
            };
            let request = OperatorRequest::Create(Box::new(Allocated::everywhere(namespace)));
            self.subsystems
                .request(&mut self.engine, self.slot, request, answer);
            self.engine.turn(Time(1), |_, _| {});
            answered
        }

        fn take_kept(&mut self) {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let (slot, version, is_kept) = loop {
                if let Some(Message::Kept(slot, version, is_kept)) = self.mailbox.try_recv() {
                    break (slot, version, is_kept);
                }
                assert!(std::time::Instant::now() < deadline, "nobody keeps it");
                std::thread::yield_now();
            };
            self.subsystems
                .ended(&mut self.engine, slot, version, is_kept);
            self.engine.turn(Time(2), |_, _| {});
        }
    }

    #[test]
    fn a_reactor_does_not_sleep_on_news() {
        let mut rig = rig();
        assert!(!rig.subsystems.has_news(&mut rig.engine));
        let answered = rig.change();
        assert!(rig.subsystems.has_news(&mut rig.engine), "a record to keep");
        assert!(rig.subsystems.look(&mut rig.engine));
        assert!(!rig.subsystems.has_news(&mut rig.engine));
        rig.take_kept();
        assert_eq!(rig.kept.0.load(Ordering::Relaxed), 1);
        assert!(rig.subsystems.has_news(&mut rig.engine), "an answer");
        assert!(answered.within(Duration::ZERO).is_none());
        assert!(rig.subsystems.look(&mut rig.engine));
        assert_eq!(answered.within(Duration::ZERO), Some(Ok(0)));
        assert!(!rig.subsystems.has_news(&mut rig.engine));
        assert!(!rig.subsystems.look(&mut rig.engine));
    }

    #[test]
    fn a_subsystem_ends_when_what_was_changed_is_kept() {
        let mut rig = rig();
        rig.change();
        let (answer, answered) = answer();
        rig.subsystems.end(rig.slot, answer);
        rig.subsystems.look(&mut rig.engine);
        assert!(
            answered.within(Duration::ZERO).is_none(),
            "it is being kept"
        );
        rig.take_kept();
        rig.subsystems.look(&mut rig.engine);
        assert_eq!(answered.within(Duration::ZERO), Some(true));
        assert_eq!(rig.engine.subsystems_mut().count(), 0);
    }
}
