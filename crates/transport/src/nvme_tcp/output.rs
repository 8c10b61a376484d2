//! The PDUs of a connection that wait to be sent.

use std::collections::VecDeque;

use memory::HostMemory;
use memory::guest::socket::Parts;

/// Bytes of a head at most: its padding ends where PDO, one byte, says.
const MAX_HEAD: usize = 256;

/// A PDU in [`Output`], or data and the response behind them: their heads are among the other ones'
/// there.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) head: usize,
    /// Place and length of its data in the private memory.
    pub(super) data: Option<(usize, u32)>,
    pub(super) digest: Option<[u8; 4]>,
    /// Bytes of a PDU without data right behind it, which is counted as a part of it.
    pub(super) behind: usize,
    /// The command whose last PDU this is.
    pub(super) frees: Option<u16>,
}

impl Queued {
    /// Of a head alone.
    #[inline]
    pub(super) const fn bare(head: usize, frees: Option<u16>) -> Self {
        Self {
            head,
            data: None,
            digest: None,
            behind: 0,
            frees,
        }
    }

    pub(super) fn len(&self) -> usize {
        let data = self.data.map_or(0, |(_, len)| len as usize);
        self.head + data + self.digest.map_or(0, |digest| digest.len()) + self.behind
    }
}

/// The PDUs that wait to be sent. Their heads lie side by side, so that those of PDUs without data
/// are sent together with the next one.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) pdus: VecDeque<Queued>,
    heads: Vec<u8>,
    /// Where the head of the first PDU lies in `heads`.
    from: usize,
    /// Bytes of the first PDU that have gone.
    pub(super) gone: usize,
}

impl Output {
    /// Makes room for `pdus` PDUs whose heads have at most `head` bytes.
    pub(super) fn reserve(&mut self, pdus: usize, head: usize) {
        self.pdus.reserve(pdus);
        self.heads.reserve(pdus * head);
    }

    /// Adds a head, which `put` adds to the bytes that it gets: its length.
    #[inline]
    pub(super) fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> usize {
        if self.from > 0 && self.heads.capacity() - self.heads.len() < MAX_HEAD {
            self.heads.drain(..self.from);
            self.from = 0;
        }
        let before = self.heads.len();
        put(&mut self.heads);
        self.heads.len() - before
    }

    /// The first PDU has gone: the command whose last one it was.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u16> {
        let pdu = self.pdus.pop_front()?;
        self.gone = 0;
        self.from += pdu.head + pdu.behind;
        if self.pdus.is_empty() {
            self.heads.clear();
            self.from = 0;
        }
        pdu.frees
    }

    /// Whether what has gone ends with a PDU.
    pub(super) fn is_between(&self) -> bool {
        let first = self.pdus.front().filter(|_| self.gone > 0);
        first.is_none_or(|pdu| pdu.behind > 0 && self.gone == pdu.len() - pdu.behind)
    }

    /// The next bytes, in as many parts as one call takes, and how many PDUs they complete.
    pub(super) fn gather<'a>(&'a self, memory: Option<&'a HostMemory>) -> (Parts<'a>, usize) {
        let (mut parts, mut pdus) = (Parts::behind(self.gone), 0);
        let (mut from, mut to) = (self.from, self.from);
        for pdu in &self.pdus {
            // Heads, data and a digest; and the heads at the end.
            if parts.room() < 4 {
                break;
            }
            pdus += 1;
            to += pdu.head;
            if pdu.data.is_none() && pdu.digest.is_none() {
                continue;
            }
            parts.add(&self.heads[from..to]);
            from = to;
            if let Some(((at, len), memory)) = pdu.data.zip(memory) {
                parts.add_memory(memory, at, len as usize);
            }
            if let Some(digest) = &pdu.digest {
                parts.add(digest);
            }
            to += pdu.behind;
        }
        parts.add(&self.heads[from..to]);
        (parts, pdus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_termination_request_may_stand_between_data_and_their_response() {
        let mut out = Output {
            pdus: VecDeque::from([Queued {
                data: Some((0, 100)),
                behind: 24,
                ..Queued::bare(24, None)
            }]),
            ..Output::default()
        };
        for (gone, between) in [
            (0, true),
            (24, false),
            (123, false),
            (124, true),
            (125, false),
        ] {
            out.gone = gone;
            assert_eq!(out.is_between(), between, "{gone}");
        }
        out.pdus[0].behind = 0;
        out.gone = 123;
        assert!(!out.is_between());
    }
}
