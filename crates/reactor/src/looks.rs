//! Inspection of media while they are served. Each turn that handles messages inspects a bounded
//! part.

use std::collections::VecDeque;

use media::Channel;
use port::{ChannelId, Channels};

use crate::answer::Answer;
use crate::maps::{Taken, Taking, Wanted};

/// Lines and zones inspected per turn; each takes some nanoseconds.
const PER_TURN: u32 = 2048;
/// Additional cost of a medium, for its totals and lists.
const MEDIUM: u32 = 512;

/// A request: media, with the state wanted of each, and where to send the results: one per medium,
/// `None` for a medium that is not open here.
#[derive(Debug)]
pub(crate) struct LookAsked {
    pub(crate) media: Vec<(ChannelId, Wanted)>,
    pub(crate) answer: Answer<Vec<Option<Taken>>>,
}

/// Requests in progress.
#[derive(Debug, Default)]
pub(crate) struct Looks(VecDeque<Going>);

#[derive(Debug)]
struct Going {
    asked: LookAsked,
    now: Option<Taking>,
    taken: Vec<Option<Taken>>,
}

impl Looks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn begin(&mut self, asked: LookAsked) {
        let taken = Vec::with_capacity(asked.media.len());
        self.0.push_back(Going {
            asked,
            now: None,
            taken,
        });
    }

    /// Discards the partial inspection of a closed channel: another medium may get its identifier.
    pub(crate) fn forget(&mut self, closed: ChannelId) {
        for going in &mut self.0 {
            let now = going.asked.media.get(going.taken.len());
            if now.is_some_and(|(id, _)| *id == closed) {
                going.now = None;
            }
        }
    }

    /// Continues, within the limit of one turn.
    pub(crate) fn look(&mut self, channels: &Channels<Channel>) {
        let mut left = PER_TURN;
        while let Some(first) = self.0.front_mut() {
            if !first.go_on(channels, &mut left) {
                return;
            }
            if let Some(Going { asked, taken, .. }) = self.0.pop_front() {
                asked.answer.send(taken);
            }
        }
    }
}

impl Going {
    /// Whether all media of the request are done.
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
