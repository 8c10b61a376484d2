//! Replies that wait to be sent.

use std::collections::VecDeque;
use std::io;

use memory::HostMemory;
use memory::guest::socket::Parts;
use nbd::Head;

use crate::secure::Stream;

/// A part of a reply.
#[derive(Debug)]
struct Queued {
    head: Head,
    /// Place and length of its data in the private memory.
    data: Option<(usize, u32)>,
    /// The slot that is free when it has gone.
    frees: Option<u16>,
}

impl Queued {
    fn len(&self) -> usize {
        self.head.len() + self.data.map_or(0, |(_, len)| len as usize)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    queued: VecDeque<Queued>,
    /// Bytes of the first one that have gone.
    gone: usize,
}

impl Output {
    /// With room for so many parts.
    pub(super) fn new(parts: usize) -> Self {
        Self {
            queued: VecDeque::with_capacity(parts),
            gone: 0,
        }
    }

    /// Parts that wait.
    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Has a head sent, and behind it `data`, a place and a length in the private memory.
    pub(super) fn push(&mut self, head: Head, data: Option<(usize, u32)>, frees: Option<u16>) {
        self.queued.push_back(Queued { head, data, frees });
    }

    /// Sends what the stream takes: the number of bytes. Slots that are free then go to `freed`.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where the stream takes nothing now.
    pub(super) fn send(
        &mut self,
        stream: &mut Stream,
        memory: &HostMemory,
        mut freed: impl FnMut(u16),
    ) -> io::Result<usize> {
        let mut parts = Parts::behind(self.gone);
        for queued in &self.queued {
            if parts.room() < 2 {
                break;
            }
            parts.add(&queued.head);
            if let Some((at, len)) = queued.data {
                parts.add_memory(memory, at, len as usize);
            }
        }
        let sent = stream.send(&parts)?;
        self.gone += sent;
        while let Some(first) = self.queued.front() {
            let len = first.len();
            if self.gone < len {
                break;
            }
            self.gone -= len;
            if let Some(slot) = self.queued.pop_front().and_then(|first| first.frees) {
                freed(slot);
            }
        }
        Ok(sent)
    }
}
