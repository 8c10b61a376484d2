//! Dies, their channels, and the link to the host: senses, programs, erases and transfers, as the
//! book defines them.

use super::extra::Chance;
use super::extra::suspend::{Suspension, Waiting};
use super::geometry::FlashPage;
use crate::activity::{Busy, Server, Tally, Work};
use crate::code::Way;
use crate::parameters::{Arithmetic, FlashParameters};
use crate::units::{PAGE, PAGE_LEN, duration};

/// Durations: everything that may change while a drive is in use.
#[derive(Clone, Copy, Debug)]
struct DieTimes {
    read_4k: [u64; 4],
    read: [u64; 4],
    program: u64,
    slc_program: u64,
    slc_read: u64,
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
            slc_program: parameters.extras.slc_program_ns,
            slc_read: parameters.extras.slc_read_ns,
            erase: parameters.erase_ns,
            channel_bandwidth: parameters.channel_bandwidth_bytes_per_s,
            most_per_transfer: parameters.max_channel_transfer_bytes,
            transfer_per_page: parameters.firmware_channel_transfer_ns,
        }
    }

    /// Time of `bytes` on a channel.
    fn transfer(&self, bytes: u32) -> u64 {
        let pages = u64::from(bytes).div_ceil(PAGE);
        duration(bytes, self.channel_bandwidth)
            .saturating_add(pages.saturating_mul(self.transfer_per_page))
    }
}

/// The link to the host, in both directions at once.
#[derive(Debug)]
pub(crate) struct Link {
    bandwidth: u64,
    to_host: Way,
    from_host: Way,
    sent: Tally,
    fetched: Tally,
}

impl Link {
    pub(crate) fn new(parameters: &FlashParameters) -> Self {
        let mut link = Self {
            bandwidth: 0,
            to_host: Way::new(parameters.arithmetic),
            from_host: Way::new(parameters.arithmetic),
            sent: Tally::default(),
            fetched: Tally::default(),
        };
        link.retune(parameters);
        link
    }

    /// The rules with which it was created.
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

    /// End of the transfer of an unmapped page that may leave from `from` on. The published program
    /// sends none.
    pub(crate) fn send_unmapped(&mut self, now: u64, from: u64) -> u64 {
        match self.to_host {
            Way::Exact(_) => self.send(now, from, PAGE_LEN),
            Way::Code(_) => from,
        }
    }

    /// End of the transfer of `bytes` that may leave from `from` on.
    pub(crate) fn send(&mut self, now: u64, from: u64, bytes: u32) -> u64 {
        let length = duration(bytes, self.bandwidth);
        self.sent.add(1, length);
        self.to_host.reserve(now, from, bytes, length)
    }

    /// End of the fetch of `bytes` from `from` on.
    pub(crate) fn fetch(&mut self, now: u64, from: u64, bytes: u32) -> u64 {
        let length = duration(bytes, self.bandwidth);
        self.fetched.add(1, length);
        self.from_host.reserve(now, from, bytes, length)
    }

    /// Activity of the link.
    pub(crate) fn busy(&self) -> [Busy; 2] {
        [
            self.sent.busy(Server::Link, Work::ToHost),
            self.fetched.busy(Server::Link, Work::FromHost),
        ]
    }
}

/// Flash pages of one sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sense {
    pub(crate) die: usize,
    pub(crate) flash_page: FlashPage,
    /// Wanted pages, at least one.
    pub(crate) pages: u32,
}

/// Purpose of a sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// A read of a host: programs and erases may be suspended for it.
    Read,
    /// Anything else.
    Drive,
}

/// Cells that a wordline is programmed into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    /// The multi-bit cells.
    Proper,
    /// Single-bit cells.
    Single,
}

/// All dies of a drive and their channels.
#[derive(Debug)]
pub(crate) struct Dies {
    times: DieTimes,
    chance: Option<Chance>,
    suspension: Option<Suspension>,
    /// Bytes of a wordline.
    wordline: u32,
    /// Planes of each die.
    planes: usize,
    /// Time from which on each plane is free, die by die.
    free: Vec<u64>,
    /// The latest of these times.
    latest: u64,
    /// Channel of each die.
    hangs_on: Vec<u32>,
    channels: Vec<Way>,
    did: Did,
}

/// Activity of all dies and channels.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    senses: Tally,
    programs: Tally,
    erases: Tally,
    transfers: Tally,
}

impl Dies {
    /// Creates dies that are connected to the channels `hangs_on`.
    pub(crate) fn new(parameters: &FlashParameters, hangs_on: Vec<u32>) -> Self {
        let channels = hangs_on.iter().max().map_or(0, |&last| last as usize + 1);
        let way = || Way::new(parameters.arithmetic);
        let mut dies = Self {
            times: DieTimes::new(parameters),
            chance: None,
            suspension: None,
            wordline: parameters.oneshot_bytes,
            planes: parameters.extras.planes as usize,
            free: vec![0; hangs_on.len() * parameters.extras.planes as usize],
            latest: 0,
            channels: (0..channels).map(|_| way()).collect(),
            hangs_on,
            did: Did::default(),
        };
        dies.retune(parameters);
        dies
    }

    /// Frees all dies, and restarts their time.
    pub(crate) fn rest(&mut self, parameters: &FlashParameters) {
        *self = Self::new(parameters, std::mem::take(&mut self.hangs_on));
    }

    pub(crate) fn retune(&mut self, parameters: &FlashParameters) {
        self.times = DieTimes::new(parameters);
        for channel in &mut self.channels {
            channel.retune(self.times.channel_bandwidth, self.times.transfer_per_page);
        }
        let before = self.chance.take();
        self.chance = Chance::new(&parameters.extras).map(|chance| chance.after(before));
        let before = self.suspension.take();
        self.suspension = Suspension::new(&parameters.extras, self.hangs_on.len(), before);
    }

    /// Whether the end of a die's operation may become later.
    pub(crate) fn are_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Registers something that waits for a die's last operation.
    pub(crate) fn wait(&mut self, die: usize, waiting: Waiting) {
        if let Some(suspension) = &mut self.suspension {
            suspension.wait(die, waiting);
        }
    }

    /// Postponed things and their new times, since the last call.
    pub(crate) fn moved(&mut self) -> impl Iterator<Item = (Waiting, u64)> {
        let moved = self
            .suspension
            .as_mut()
            .map(|suspension| &mut suspension.moved);
        moved.into_iter().flat_map(|moved| moved.drain(..))
    }

    /// Numbers of dies and channels.
    pub(crate) fn servers(&self) -> [(Server, u64); 2] {
        let (dies, channels) = (self.hangs_on.len(), self.channels.len());
        [
            (Server::Die, dies as u64),
            (Server::Channel, channels as u64),
        ]
    }

    /// Activity of dies and channels.
    pub(crate) fn busy(&self) -> [Busy; 4] {
        let Did {
            senses,
            programs,
            erases,
            transfers,
        } = self.did;
        [
            senses.busy(Server::Die, Work::Sense),
            programs.busy(Server::Die, Work::Program),
            erases.busy(Server::Die, Work::Erase),
            transfers.busy(Server::Channel, Work::Transfer),
        ]
    }

    /// Time from which on all dies are free.
    pub(crate) fn all_free(&self) -> u64 {
        self.latest
    }

    /// Senses pages for a read, from `at` on, and sends them over `link`; returns the arrival of
    /// the last one.
    pub(crate) fn sense_for_host(
        &mut self,
        now: u64,
        at: u64,
        sense: Sense,
        link: &mut Link,
    ) -> u64 {
        let mut arrived = at;
        self.sense(now, at, sense, For::Read, |left, bytes| {
            arrived = arrived.max(link.send(now, left, bytes));
        });
        arrived
    }

    /// Senses pages, from `at` on, that stay in the drive; returns the time at which the last has
    /// left the channel.
    pub(crate) fn sense_for_drive(&mut self, now: u64, at: u64, sense: Sense, why: For) -> u64 {
        self.sense(now, at, sense, why, |_, _| ())
    }

    fn sense(
        &mut self,
        now: u64,
        at: u64,
        sense: Sense,
        why: For,
        mut left_channel: impl FnMut(u64, u32),
    ) -> u64 {
        let times = &self.times;
        let cell = sense.flash_page.cell;
        let read = match sense.pages {
            1 => times.read_4k[cell],
            _ => times.read[cell],
        };
        let read = match &mut self.chance {
            Some(chance) => chance.read(read),
            None => read,
        };
        self.did.senses.add(1, read);
        let given_way = match &self.suspension {
            Some(suspension) if why == For::Read => {
                suspension.begin(sense.die, at, self.free_from(sense.die))
            }
            _ => None,
        };
        let plane = sense.die * self.planes + sense.flash_page.plane as usize;
        let begin = given_way.unwrap_or_else(|| self.free[plane].max(at));
        let channel = &mut self.channels[self.hangs_on[sense.die] as usize];
        let mut end = begin.saturating_add(read);
        let mut bytes = sense.pages * PAGE_LEN; // at most a flash page, which came as 32 bits
        while bytes > 0 {
            let chunk = bytes.min(times.most_per_transfer);
            let length = times.transfer(chunk);
            self.did.transfers.add(1, length);
            end = channel.reserve(now, end, chunk, length);
            left_channel(end, chunk);
            bytes -= chunk;
        }
        match (given_way, &mut self.suspension) {
            (Some(_), Some(suspension)) => {
                let free = suspension.sensed(sense.die, at, end);
                self.busy_until(sense.die, free);
            }
            _ => {
                self.free[plane] = end;
                self.latest = self.latest.max(end);
            }
        }
        end
    }

    /// Programs a wordline, from `at` on; returns the end.
    pub(crate) fn program(&mut self, now: u64, at: u64, die: usize, cells: Cells) -> u64 {
        let from = self.free_from(die).max(at);
        let channel = &mut self.channels[self.hangs_on[die] as usize];
        let length = self.times.transfer(self.wordline);
        self.did.transfers.add(1, length);
        let there = channel.reserve(now, from, self.wordline, length);
        let program = match cells {
            Cells::Proper => self.times.program,
            Cells::Single => self.times.slc_program,
        };
        let length = self.programs(program, 1);
        self.asked(die, there, length)
    }

    /// Programs `wordlines` of a die, at least one, one after another, from `at` on, without data
    /// transfers.
    pub(crate) fn fill(&mut self, at: u64, die: usize, wordlines: u64) -> u64 {
        let program = self.times.program;
        let all_but_last = self.programs(program, wordlines - 1);
        let last = self.programs(program, 1);
        self.occupy(at, die, all_but_last, last)
    }

    /// Programs a wordline of single-bit cells into multi-bit cells, from `at` on.
    pub(crate) fn fold(&mut self, at: u64, die: usize) -> u64 {
        let read = self.times.slc_read;
        self.did.senses.add(1, read);
        let program = self.programs(self.times.program, 1);
        self.occupy(at, die, read, program)
    }

    /// Erases `blocks` of a die, at least one, one after another, from `at` on; returns the end.
    pub(crate) fn erase(&mut self, at: u64, die: usize, blocks: u64) -> u64 {
        let all_but_last = self.erases(blocks - 1);
        let last = self.erases(1);
        self.occupy(at, die, all_but_last, last)
    }

    /// Total time of `wordlines` programs of `program` each, one after another.
    fn programs(&mut self, program: u64, wordlines: u64) -> u64 {
        let length = match &mut self.chance {
            Some(chance) => chance.programs(program, wordlines),
            None => program.saturating_mul(wordlines),
        };
        self.did.programs.add(wordlines, length);
        length
    }

    /// Total time of erases.
    fn erases(&mut self, blocks: u64) -> u64 {
        let erase = self.times.erase;
        let length = match &mut self.chance {
            Some(chance) => chance.erases(erase, blocks),
            None => erase.saturating_mul(blocks),
        };
        self.did.erases.add(blocks, length);
        length
    }

    /// Occupies a die for `before` and then an operation of `length`.
    fn occupy(&mut self, at: u64, die: usize, before: u64, length: u64) -> u64 {
        let begin = self.free_from(die).max(at).saturating_add(before);
        self.asked(die, begin, length)
    }

    /// Records the last operation of a die: its begin and duration.
    fn asked(&mut self, die: usize, begin: u64, length: u64) -> u64 {
        let end = begin.saturating_add(length);
        if let Some(suspension) = &mut self.suspension {
            suspension.asked(die, begin, end);
        }
        self.busy_until(die, end);
        end
    }

    /// Time from which on the whole die is free.
    fn free_from(&self, die: usize) -> u64 {
        match self.planes {
            1 => self.free[die],
            planes => {
                let free = &self.free[die * planes..][..planes];
                free.iter().copied().max().unwrap_or_default()
            }
        }
    }

    /// Marks the whole die as busy until `end`.
    fn busy_until(&mut self, die: usize, end: u64) {
        match self.planes {
            1 => self.free[die] = end,
            planes => self.free[die * planes..][..planes].fill(end),
        }
        self.latest = self.latest.max(end);
    }
}
