//! Requests one at a time, on the first queue.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Completion, Disk};
use crate::protocol::status;
use crate::request::{Layout, Range, Request};

impl Disk {
    /// Does a request and waits for it, whatever its status is. No other request of the queue may
    /// be in flight.
    ///
    /// # Errors
    /// As [`Self::submit`]; the ring is full, or no answer comes within [`crate::BOUND`].
    pub fn run(&mut self, queue: usize, request: &Request, layout: &Layout) -> Result<Completion> {
        let token = self.submit(queue, request, layout)?;
        let token = token.context("the request does not fit into the ring")?;
        let deadline = Instant::now() + crate::BOUND;
        loop {
            if let Some(done) = self.poll(queue)? {
                ensure!(done.token == token, "another request is in flight");
                return Ok(done);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let is_done = self.wait(queue, rest)?;
            ensure!(is_done, "no interrupt for {:?}", crate::BOUND);
        }
    }

    fn expect_ok(&mut self, request: &Request) -> Result<Vec<u8>> {
        let layout = Layout::plain(request).indirect(self.options().is_indirect);
        let done = self.run(0, request, &layout)?;
        ensure!(
            done.status == status::OK,
            "{}: status {}",
            name(request),
            done.status
        );
        Ok(done.data)
    }

    /// Reads bytes from a sector on.
    ///
    /// # Errors
    /// As [`Self::run`], or the status is not OK.
    pub fn read(&mut self, sector: u64, len: usize) -> Result<Vec<u8>> {
        self.expect_ok(&Request::Read { sector, len })
    }

    /// Writes bytes from a sector on.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&mut self, sector: u64, data: &[u8]) -> Result<()> {
        let data = data.to_vec();
        self.expect_ok(&Request::Write { sector, data }).map(drop)
    }

    /// Makes completed writes persistent.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn flush(&mut self) -> Result<()> {
        self.expect_ok(&Request::Flush).map(drop)
    }

    /// Deallocates ranges.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn discard(&mut self, ranges: &[Range]) -> Result<()> {
        self.expect_ok(&Request::Discard(ranges.to_vec())).map(drop)
    }

    /// Writes zeroes to ranges.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write_zeroes(&mut self, ranges: &[Range]) -> Result<()> {
        self.expect_ok(&Request::WriteZeroes(ranges.to_vec()))
            .map(drop)
    }

    /// The serial number, 20 bytes padded with zeros.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn get_id(&mut self) -> Result<Vec<u8>> {
        self.expect_ok(&Request::GetId)
    }
}

fn name(request: &Request) -> String {
    match request {
        Request::Read { sector, len } => format!("read of {len} bytes at sector {sector}"),
        Request::Write { sector, data } => {
            format!("write of {} bytes at sector {sector}", data.len())
        }
        other => format!("{other:?}"),
    }
}
