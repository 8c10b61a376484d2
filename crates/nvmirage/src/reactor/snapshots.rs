//! States of the timing of media that are being taken while they are served: the channel of each
//! does that, a part in every turn, and what is whole is handed to who asked.

use std::sync::mpsc;

use media::Channel;
use port::{ChannelId, Channels};

use crate::keep::timing::checkpoints::{Asked, Taken};

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Vec<Taking>);

#[derive(Debug)]
struct Taking {
    channel: ChannelId,
    /// The drive's count of changes when it was begun.
    changes: u64,
    answer: mpsc::SyncSender<Option<Taken>>,
}

impl Snapshots {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to take the state of a channel's drive, or tells its count of changes.
    pub(super) fn begin(
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
                // who asked may have given up waiting
                let _ = answer.try_send(changes.map(|changes| Taken { changes, snapshot }));
            }
        }
    }

    /// Hands out what is whole.
    pub(super) fn look(&mut self, channels: &mut Channels<Channel>) {
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
            // who asked may have given up waiting
            let _ = taking.answer.try_send(Some(taken));
            false
        });
    }
}
