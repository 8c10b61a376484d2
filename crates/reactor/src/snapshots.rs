//! Snapshots of timing models' state, taken while media are served: the channel captures a part in
//! every turn, and a complete snapshot is sent to the requester.

use media::Channel;
use port::{ChannelId, Channels};

use crate::answer::Answer;

/// Requests the state of a medium's drive from its reactor.
pub type Ask = Box<dyn Fn(Asked) -> anyhow::Result<()> + Send>;

/// A request to a reactor.
#[derive(Debug)]
pub struct Asked {
    /// Memory for the state; without it, only the change count is requested.
    pub room: Option<Box<model::Room>>,
    /// Where the answer goes; `None` if there is no such drive.
    pub answer: Answer<Option<Taken>>,
}

/// Answer of a reactor.
#[derive(Debug)]
pub struct Taken {
    /// The change count of the drive; the state is the same as long as this is.
    pub changes: u64,
    /// The state at that count, if there was memory for it.
    pub snapshot: Option<Box<model::Snapshot>>,
}

/// Snapshots in progress.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Vec<Taking>);

#[derive(Debug)]
struct Taking {
    channel: ChannelId,
    /// The drive's change count when the snapshot began.
    changes: u64,
    answer: Answer<Option<Taken>>,
}

impl Snapshots {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a snapshot of the drive's state; without room for one, reports the change count.
    pub(crate) fn begin(
        &mut self,
        channels: &mut Channels<Channel>,
        channel: ChannelId,
        Asked { room, answer }: Asked,
    ) {
        let its = channels.get_mut(channel);
        let flash = its.as_ref().and_then(|its| its.model()?.flash());
        let changes = flash.map(model::Flash::changes);
        match (its, changes, room) {
            (Some(its), Some(changes), Some(room)) => {
                its.begin_snapshot(*room);
                self.0.push(Taking {
                    channel,
                    changes,
                    answer,
                });
            }
            (_, changes, _) => {
                let snapshot = None;
                answer.send(changes.map(|changes| Taken { changes, snapshot }));
            }
        }
    }

    /// Sends complete snapshots.
    pub(crate) fn look(&mut self, channels: &mut Channels<Channel>) {
        self.0.retain(|taking| {
            let channel = channels.get_mut(taking.channel);
            let is_there = channel.is_some();
            let Some(snapshot) = channel.and_then(Channel::take_snapshot) else {
                return is_there;
            };
            let taken = Taken {
                changes: taking.changes,
                snapshot: Some(Box::new(snapshot)),
            };
            taking.answer.send(Some(taken));
            false
        });
    }
}
