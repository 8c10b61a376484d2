//! Looks at media while they are served, for whoever shows what they are like: a bounded part in
//! each turn that looks at messages.

use std::collections::VecDeque;
use std::sync::mpsc;

use media::Channel;
use port::{ChannelId, Channels};

use crate::observe::{Taken, Taking, Wanted};

/// Lines and zones that are looked at in one turn: each takes some nanoseconds.
const PER_TURN: u32 = 2048;
/// What a medium counts beside those: what is told of it in words and lists.
const MEDIUM: u32 = 512;

/// What is asked: some media, what is wanted of each, and where the answer goes: one for each,
/// `None` where it is not here.
#[derive(Debug)]
pub(crate) struct LookAsked {
    pub(super) media: Vec<(ChannelId, Wanted)>,
    pub(super) answer: mpsc::SyncSender<Vec<Option<Taken>>>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Looks(VecDeque<Going>);

#[derive(Debug)]
struct Going {
    asked: LookAsked,
    now: Option<Taking>,
    taken: Vec<Option<Taken>>,
}

impl Looks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, asked: LookAsked) {
        let taken = Vec::with_capacity(asked.media.len());
        self.0.push_back(Going {
            asked,
            now: None,
            taken,
        });
    }

    /// This channel is closed: another medium may have its place when a look goes on.
    pub(super) fn forget(&mut self, closed: ChannelId) {
        for going in &mut self.0 {
            let now = going.asked.media.get(going.taken.len());
            if now.is_some_and(|(id, _)| *id == closed) {
                going.now = None;
            }
        }
    }

    /// Goes on with them, as far as one turn may.
    pub(super) fn look(&mut self, channels: &Channels<Channel>) {
        let mut left = PER_TURN;
        while let Some(first) = self.0.front_mut() {
            if !first.go_on(channels, &mut left) {
                return;
            }
            if let Some(Going { asked, taken, .. }) = self.0.pop_front() {
                // who asked may have given up waiting
                let _ = asked.answer.try_send(taken);
            }
        }
    }
}

impl Going {
    /// Whether all of it is taken.
    fn go_on(&mut self, channels: &Channels<Channel>, left: &mut u32) -> bool {
        while let Some((id, wanted)) = self.asked.media.get(self.taken.len()) {
            if *left == 0 {
                return false;
            }
            let Some(channel) = channels.get(*id) else {
                self.now = None;
                self.taken.push(None);
                continue;
            };
            let now = self.now.get_or_insert_with(|| Taking::new(*wanted));
            let taken = now.go_on(&channel.look(), left);
            if taken.is_none() {
                return false;
            }
            self.now = None;
            self.taken.push(taken);
            *left = left.saturating_sub(MEDIUM);
        }
        true
    }
}
