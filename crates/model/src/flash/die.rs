//! Dies, their channels, and the link to the host: senses, programs, erases and transfers, each as the book defines it.

use super::extra::Chance;
use crate::code::Way;
use crate::parameters::{Arithmetic, FlashParameters};
use crate::units::{PAGE, PAGE_LEN, duration};

/// How long things take: all that may change while a drive is in use.
#[derive(Clone, Copy, Debug)]
struct DieTimes {
    read_4k: [u64; 4],
    read: [u64; 4],
    program: u64,
    erase: u64,
    channel_bandwidth: u64,
    most_per_transfer: u32,
    transfer_per_page: u64,
}

impl DieTimes {
    fn new(parameters: &FlashParameters) -> Self {
        Self {
            read_4k: parameters.read_4k_ns,
            read: parameters.read_ns,
            program: parameters.program_ns,
            erase: parameters.erase_ns,
            channel_bandwidth: parameters.channel_bandwidth_bytes_per_s,
            most_per_transfer: parameters.max_channel_transfer_bytes,
            transfer_per_page: parameters.firmware_channel_transfer_ns,
        }
    }

    /// How long `bytes` are on a channel.
    fn transfer(&self, bytes: u32) -> u64 {
        let pages = u64::from(bytes).div_ceil(PAGE);
        duration(bytes, self.channel_bandwidth)
            .saturating_add(pages.saturating_mul(self.transfer_per_page))
    }
}

/// The link to the host: both directions at once.
#[derive(Debug)]
pub(crate) struct Link {
    bandwidth: u64,
    to_host: Way,
    from_host: Way,
}

impl Link {
    pub(crate) fn new(parameters: &FlashParameters) -> Self {
        let mut link = Self {
            bandwidth: 0,
            to_host: Way::new(parameters.arithmetic),
            from_host: Way::new(parameters.arithmetic),
        };
        link.retune(parameters);
        link
    }

    /// Whose rules it follows: those that it was made with.
    pub(crate) fn arithmetic(&self) -> Arithmetic {
        match self.to_host {
            Way::Exact(_) => Arithmetic::Exact,
            Way::Code(_) => Arithmetic::Code,
        }
    }

    pub(crate) fn retune(&mut self, parameters: &FlashParameters) {
        self.bandwidth = parameters.link_bandwidth_bytes_per_s;
        self.to_host.retune(self.bandwidth, 0);
        self.from_host.retune(self.bandwidth, 0);
    }

    /// When a page of which nothing is known, and which may leave from `from` on, has left. The published program sends none.
    pub(crate) fn send_unmapped(&mut self, now: u64, from: u64) -> u64 {
        match self.to_host {
            Way::Exact(_) => self.send(now, from, PAGE_LEN),
            Way::Code(_) => from,
        }
    }

    /// When `bytes` that may leave from `from` on have left.
    pub(crate) fn send(&mut self, now: u64, from: u64, bytes: u32) -> u64 {
        let length = duration(bytes, self.bandwidth);
        self.to_host.reserve(now, from, bytes, length)
    }

    /// When `bytes` that may be fetched from `from` on are there.
    pub(crate) fn fetch(&mut self, now: u64, from: u64, bytes: u32) -> u64 {
        let length = duration(bytes, self.bandwidth);
        self.from_host.reserve(now, from, bytes, length)
    }
}

/// Flash pages of one sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sense {
    pub(crate) die: usize,
    /// The kind of the flash page.
    pub(crate) cell: usize,
    /// Pages wanted, at least one.
    pub(crate) pages: u32,
}

/// All dies of a drive and their channels.
#[derive(Debug)]
pub(crate) struct Dies {
    times: DieTimes,
    chance: Option<Chance>,
    /// Bytes of a wordline.
    wordline: u32,
    /// From when on each is free.
    free: Vec<u64>,
    /// The greatest of those.
    latest: u64,
    /// On which channel each hangs.
    hangs_on: Vec<u32>,
    channels: Vec<Way>,
}

impl Dies {
    /// Dies that hang on the channels `hangs_on`.
    pub(crate) fn new(parameters: &FlashParameters, hangs_on: Vec<u32>) -> Self {
        let channels = hangs_on.iter().max().map_or(0, |&last| last as usize + 1);
        let way = || Way::new(parameters.arithmetic);
        let mut dies = Self {
            times: DieTimes::new(parameters),
            chance: None,
            wordline: parameters.oneshot_bytes,
            free: vec![0; hangs_on.len()],
            latest: 0,
            channels: (0..channels).map(|_| way()).collect(),
            hangs_on,
        };
        dies.retune(parameters);
        dies
    }

    pub(crate) fn retune(&mut self, parameters: &FlashParameters) {
        self.times = DieTimes::new(parameters);
        for channel in &mut self.channels {
            channel.retune(self.times.channel_bandwidth, self.times.transfer_per_page);
        }
        let before = self.chance.take();
        self.chance = Chance::new(&parameters.extras).map(|chance| chance.after(before));
    }

    /// From when on all are free.
    pub(crate) fn all_free(&self) -> u64 {
        self.latest
    }

    /// Senses pages for a host, from `at` on, and sends them over `link`; gives when the last has arrived.
    pub(crate) fn sense_for_host(
        &mut self,
        now: u64,
        at: u64,
        sense: Sense,
        link: &mut Link,
    ) -> u64 {
        let mut arrived = at;
        self.sense(now, at, sense, |left, bytes| {
            arrived = arrived.max(link.send(now, left, bytes));
        });
        arrived
    }

    /// Senses pages, from `at` on, that stay in the drive; gives when the last has left the channel.
    pub(crate) fn sense_for_drive(&mut self, now: u64, at: u64, sense: Sense) -> u64 {
        self.sense(now, at, sense, |_, _| ())
    }

    fn sense(
        &mut self,
        now: u64,
        at: u64,
        sense: Sense,
        mut left_channel: impl FnMut(u64, u32),
    ) -> u64 {
        let times = &self.times;
        let read = match sense.pages {
            1 => times.read_4k[sense.cell],
            _ => times.read[sense.cell],
        };
        let read = match &mut self.chance {
            Some(chance) => chance.read(read),
            None => read,
        };
        let channel = &mut self.channels[self.hangs_on[sense.die] as usize];
        let mut end = self.free[sense.die].max(at).saturating_add(read);
        let mut bytes = sense.pages * PAGE_LEN; // at most a flash page, which came as 32 bits
        while bytes > 0 {
            let chunk = bytes.min(times.most_per_transfer);
            end = channel.reserve(now, end, chunk, times.transfer(chunk));
            left_channel(end, chunk);
            bytes -= chunk;
        }
        self.busy_until(sense.die, end);
        end
    }

    /// Programs a wordline, from `at` on; gives when it is done.
    pub(crate) fn program(&mut self, now: u64, at: u64, die: usize) -> u64 {
        let from = self.free[die].max(at);
        let channel = &mut self.channels[self.hangs_on[die] as usize];
        let there = channel.reserve(now, from, self.wordline, self.times.transfer(self.wordline));
        let end = there.saturating_add(self.programs(1));
        self.busy_until(die, end);
        end
    }

    /// Programs `wordlines` of a die one after another, from `at` on, without data.
    pub(crate) fn fill(&mut self, at: u64, die: usize, wordlines: u64) -> u64 {
        let length = self.programs(wordlines);
        self.occupy(at, die, length)
    }

    /// Erases `blocks` of a die one after another, from `at` on; gives when that is done.
    pub(crate) fn erase(&mut self, at: u64, die: usize, blocks: u64) -> u64 {
        let erase = self.times.erase;
        let length = match &mut self.chance {
            Some(chance) => chance.erases(erase, blocks),
            None => erase.saturating_mul(blocks),
        };
        self.occupy(at, die, length)
    }

    /// How long `wordlines` programs of a die take, one after another.
    fn programs(&mut self, wordlines: u64) -> u64 {
        let program = self.times.program;
        match &mut self.chance {
            Some(chance) => chance.programs(program, wordlines),
            None => program.saturating_mul(wordlines),
        }
    }

    fn occupy(&mut self, at: u64, die: usize, length: u64) -> u64 {
        let end = self.free[die].max(at).saturating_add(length);
        self.busy_until(die, end);
        end
    }

    fn busy_until(&mut self, die: usize, end: u64) {
        self.free[die] = end;
        self.latest = self.latest.max(end);
    }
}
