//! Actions of hosts on a controller that serves them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use driver::Shutdown;
use driver::bus::Bus as _;

use super::{BOUND, DEPTH, Host, POISON, QUEUES, Queue, REGION, REGIONS, Region};

impl Host {
    /// Something that hosts do; how long it then submits nothing.
    pub(super) fn event(&mut self) -> Result<Option<Duration>> {
        match self.random.below(20) {
            0 => self.reset()?,
            1..5 => self.unmap()?,
            5..8 => self.delete_queue()?,
            8..12 => self.wait_for_interrupt()?,
            12..15 => {
                return Ok(Some(Duration::from_micros(
                    self.random.spread(500, 300_000),
                )));
            }
            _ => self.depth = self.random.spread(1, DEPTH.into()) as u16,
        }
        self.map_again()?;
        Ok(None)
    }

    pub(super) fn drop_queue(&mut self, at: usize) -> Result<Option<Queue>> {
        let Some(mut queue) = self.queues[at].take() else {
            return Ok(None);
        };
        for out in queue.out.iter_mut().filter_map(Option::take) {
            self.drop(&out)?;
        }
        Ok(Some(queue))
    }

    fn reset(&mut self) -> Result<()> {
        self.tally.resets += 1;
        match self.random.below(4) {
            0 => {
                self.device.reset_function()?;
                self.drop_queues()?;
                self.device.enable()?;
            }
            1 => {
                self.device.shutdown(Shutdown::Normal)?;
                self.device.reset()?;
                self.drop_queues()?;
            }
            _ => {
                self.device.reset()?;
                self.drop_queues()?;
            }
        }
        self.make_queues()?;
        self.waited();
        Ok(())
    }

    fn drop_queues(&mut self) -> Result<()> {
        (0..QUEUES).try_for_each(|at| self.drop_queue(at).map(|_| ()))
    }

    fn delete_queue(&mut self) -> Result<()> {
        self.tally.deletions += 1;
        let at = self.random.index(QUEUES);
        // Its last completions are not read: the outcome of its commands in flight is unknown.
        let Some(queue) = self.queues[at].take() else {
            return Ok(());
        };
        let Queue { pair, mut out, .. } = queue;
        self.device.delete_queue_pair(pair)?;
        for out in out.iter_mut().filter_map(Option::take) {
            self.drop(&out)?;
        }
        let queue = self.make_queue()?;
        self.queues[at] = Some(queue);
        self.waited();
        Ok(())
    }

    fn unmap(&mut self) -> Result<()> {
        let region = self.random.index(REGIONS);
        if !self.regions[region].mapped {
            return Ok(());
        }
        self.tally.unmaps += 1;
        for queue in self.queues.iter_mut().flatten() {
            let out = queue.out.iter_mut().flatten();
            out.filter(|out| out.region == region)
                .for_each(|out| out.lost = true);
        }
        let Region { base, buffer, .. } = &self.regions[region];
        self.device.bus().unshare(*base, REGION as u64)?;
        // From now on the drive must not write there.
        buffer.fill(POISON);
        self.regions[region].mapped = false;
        self.waited();
        Ok(())
    }

    /// Gives memory again that no command uses any more, after a look whether anybody has written
    /// to it.
    pub(super) fn map_again(&mut self) -> Result<()> {
        for region in 0..REGIONS {
            let mut out = self
                .queues
                .iter()
                .flatten()
                .flat_map(|q| q.out.iter().flatten());
            if self.regions[region].mapped || out.any(|out| out.region == region) {
                continue;
            }
            let Region {
                memory,
                buffer,
                base,
                mapped,
            } = &mut self.regions[region];
            let mut bytes = vec![0; REGION];
            buffer.read_into(0, &mut bytes);
            ensure!(
                bytes.iter().all(|byte| *byte == POISON),
                "memory was written to after its unmap was answered"
            );
            self.device.bus().share(memory, *base)?;
            *mapped = true;
        }
        self.waited();
        Ok(())
    }

    /// Looks at a queue only when it was interrupted, until nothing is out in it.
    fn wait_for_interrupt(&mut self) -> Result<()> {
        let at = self.random.index(QUEUES);
        if !self.queues[at]
            .as_ref()
            .is_some_and(|queue| queue.interrupt)
        {
            return Ok(());
        }
        self.tally.waits += 1;
        loop {
            let queue = self.queues[at].as_mut().context("it is there")?;
            if queue.pair.in_flight() == 0 {
                break;
            }
            let taken = queue.pair.wait(BOUND)?;
            ensure!(
                taken > 0,
                "a stall: no interrupt for {} commands in {BOUND:?}",
                queue.pair.in_flight()
            );
            while let Some(cqe) = self.next_completion(at) {
                self.done(at, &cqe)?;
            }
        }
        self.waited();
        Ok(())
    }
}
