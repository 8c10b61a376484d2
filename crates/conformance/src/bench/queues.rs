//! Queues made by hand, and commands through them.

use super::doorbells::{head_of, tail_of};
use super::{Bench, Mem};
use crate::Verdict;
use crate::verdict::{check, fail, not_supported, same};
use crate::wire::{Cqe, Sqe};

/// A submission queue: entries of 64 bytes.
#[derive(Clone, Debug)]
pub struct Sq {
    /// Queue identifier.
    pub id: u16,
    /// Where it lies.
    pub mem: Mem,
    /// Entries it has.
    pub entries: u32,
    /// Where the next command goes.
    pub tail: u32,
    next_cid: u16,
}

impl Sq {
    /// A queue that the controller need not know of.
    #[must_use]
    pub fn new(id: u16, mem: Mem, entries: u32) -> Self {
        Self {
            id,
            mem,
            entries,
            tail: 0,
            next_cid: 0,
        }
    }
}

/// A completion queue: entries of 16 bytes.
#[derive(Clone, Debug)]
pub struct Cq {
    /// Queue identifier.
    pub id: u16,
    /// Where it lies.
    pub mem: Mem,
    /// Entries it has.
    pub entries: u32,
    /// Where the next completion is looked for.
    pub head: u32,
    /// The Phase Tag of a new completion.
    pub phase: bool,
}

impl Cq {
    /// A queue that the controller need not know of.
    #[must_use]
    pub fn new(id: u16, mem: Mem, entries: u32) -> Self {
        Self {
            id,
            mem,
            entries,
            head: 0,
            phase: true,
        }
    }

    /// The dwords of an entry, the one with the phase first.
    fn entry(&self, index: u32) -> [u32; 4] {
        let at = usize::try_from(index * 16).expect("2^20 bytes at most");
        let last = self.mem.load(at + 12);
        let [a, b, c] = [0, 4, 8].map(|n| self.mem.load(at + n));
        [a, b, c, last]
    }

    /// The next completion, where it has been posted; it stays in the queue.
    #[must_use]
    pub fn peek(&self) -> Option<Cqe> {
        let dwords = self.entry(self.head);
        let cqe = Cqe {
            dwords,
            of: String::new(),
        };
        (cqe.phase() == self.phase).then_some(cqe)
    }

    /// Takes the next completion; the controller is not told.
    pub fn take(&mut self) -> Option<Cqe> {
        let cqe = self.peek()?;
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(cqe)
    }
}

/// A submission queue and the completion queue that it completes to.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The submission queue.
    pub sq: Sq,
    /// The completion queue.
    pub cq: Cq,
}

impl Bench {
    /// Memory for both queues of a pair; the controller is not told.
    pub(super) fn lay_out(
        &mut self,
        sqid: u16,
        cqid: u16,
        sq_entries: u32,
        cq_entries: u32,
    ) -> Verdict<Pair> {
        Ok(Pair {
            sq: self.lay_out_sq(sqid, sq_entries)?,
            cq: self.lay_out_cq(cqid, cq_entries)?,
        })
    }

    /// Memory for a submission queue; the controller is not told.
    ///
    /// # Errors
    /// There is none.
    pub fn lay_out_sq(&mut self, id: u16, entries: u32) -> Verdict<Sq> {
        let mem = self.mem(usize::try_from(entries * 64).expect("2^22 bytes at most"))?;
        Ok(Sq::new(id, mem, entries))
    }

    /// Memory for a completion queue; the controller is not told.
    ///
    /// # Errors
    /// There is none.
    pub fn lay_out_cq(&mut self, id: u16, entries: u32) -> Verdict<Cq> {
        let mem = self.mem(usize::try_from(entries * 16).expect("2^20 bytes at most"))?;
        Ok(Cq::new(id, mem, entries))
    }

    /// Asks for I/O queues once; how many submission and completion queues were
    /// granted (Base 2.1, 5.1.25.2.1).
    ///
    /// # Errors
    /// Set Features fails, or the doorbells to be used are not there.
    pub fn grant(&mut self) -> Verdict<(u32, u32)> {
        if let Some(granted) = self.granted {
            return Ok(granted);
        }
        let sqe = Sqe::new(0x09).dw(10, 0x07).dw(11, 0x003f_003f);
        let dw0 = self.admin(sqe)?.ok()?.dw0();
        let granted = ((dw0 & 0xffff) + 1, (dw0 >> 16) + 1);
        self.granted = Some(granted);
        self.prepare_ringing()?;
        Ok(granted)
    }

    /// Create I/O Completion Queue as a command, polled.
    #[must_use]
    pub fn create_cq_sqe(cq: &Cq) -> Sqe {
        Sqe::new(0x05)
            .prps((cq.mem.iova(), 0))
            .dw(10, (cq.entries - 1) << 16 | u32::from(cq.id))
            .dw(11, 1)
    }

    /// Create I/O Submission Queue as a command.
    #[must_use]
    pub fn create_sq_sqe(sq: &Sq, cqid: u16) -> Sqe {
        Sqe::new(0x01)
            .prps((sq.mem.iova(), 0))
            .dw(10, (sq.entries - 1) << 16 | u32::from(sq.id))
            .dw(11, u32::from(cqid) << 16 | 1)
    }

    /// Makes an I/O completion queue, polled.
    ///
    /// # Errors
    /// The controller does not.
    pub fn create_cq(&mut self, id: u16, entries: u32) -> Verdict<Cq> {
        self.create_cq_with(id, entries, 1)
    }

    /// Makes an I/O completion queue with this dword 11: vector, interrupts
    /// enabled (bit 1), contiguous (bit 0).
    ///
    /// # Errors
    /// The controller does not.
    pub fn create_cq_with(&mut self, id: u16, entries: u32, dw11: u32) -> Verdict<Cq> {
        self.grant()?;
        let cq = self.lay_out_cq(id, entries)?;
        self.reset_doorbell(head_of(id));
        self.admin(Self::create_cq_sqe(&cq).dw(11, dw11))?.ok()?;
        Ok(cq)
    }

    /// Makes an I/O submission queue that completes to `cqid`.
    ///
    /// # Errors
    /// The controller does not.
    pub fn create_sq(&mut self, id: u16, entries: u32, cqid: u16) -> Verdict<Sq> {
        self.create_sq_with(id, entries, u32::from(cqid) << 16 | 1)
    }

    /// Makes an I/O submission queue with this dword 11: completion queue,
    /// priority (bits 2:1), contiguous (bit 0).
    ///
    /// # Errors
    /// The controller does not.
    pub fn create_sq_with(&mut self, id: u16, entries: u32, dw11: u32) -> Verdict<Sq> {
        self.grant()?;
        let sq = self.lay_out_sq(id, entries)?;
        self.reset_doorbell(tail_of(id));
        self.admin(Self::create_sq_sqe(&sq, 0).dw(11, dw11))?.ok()?;
        Ok(sq)
    }

    /// Makes the next I/O queue pair, with as many entries or as there may be.
    ///
    /// # Errors
    /// The controller does not.
    pub fn pair(&mut self, entries: u32) -> Verdict<Pair> {
        let (sqs, cqs) = self.grant()?;
        let id = self.next_qid;
        if u32::from(id) > sqs.min(cqs) {
            return not_supported(format!(
                "the controller grants {} queue pairs",
                sqs.min(cqs)
            ));
        }
        let entries = entries.min(self.entries_max());
        let cq = self.create_cq(id, entries)?;
        let sq = self.create_sq(id, entries, id)?;
        self.next_qid += 1;
        Ok(Pair { sq, cq })
    }

    /// Deletes a submission queue.
    ///
    /// # Errors
    /// The bus fails.
    pub fn delete_sq(&mut self, id: u16) -> Verdict<Cqe> {
        self.admin(Sqe::new(0x00).dw(10, id.into()))
    }

    /// Deletes a completion queue.
    ///
    /// # Errors
    /// The bus fails.
    pub fn delete_cq(&mut self, id: u16) -> Verdict<Cqe> {
        self.admin(Sqe::new(0x04).dw(10, id.into()))
    }

    /// Puts a command into a queue, under the queue's next identifier, which is
    /// returned; the controller is not told.
    pub fn put(&mut self, sq: &mut Sq, sqe: Sqe) -> u16 {
        let cid = sq.next_cid;
        sq.next_cid = sq.next_cid.wrapping_add(1);
        self.put_with_cid(sq, sqe, cid);
        cid
    }

    /// As [`Self::put`], under this identifier.
    pub fn put_with_cid(&mut self, sq: &mut Sq, sqe: Sqe, cid: u16) {
        let at = usize::try_from(sq.tail * 64).expect("2^22 bytes at most");
        sq.mem.write(at, &sqe.cid(cid).bytes());
        sq.tail = (sq.tail + 1) % sq.entries;
        self.in_flight.push((sq.id, cid, sqe.to_string()));
    }

    /// Tells the controller of everything put into a queue.
    ///
    /// # Errors
    /// The bus fails.
    pub fn ring_sq(&mut self, sq: &Sq) -> Verdict {
        self.ring(tail_of(sq.id), sq.tail)
    }

    /// Tells the controller of everything taken from a queue.
    ///
    /// # Errors
    /// The bus fails.
    pub fn ring_cq(&mut self, cq: &Cq) -> Verdict {
        self.ring(head_of(cq.id), cq.head)
    }

    /// Puts a command and tells the controller.
    ///
    /// # Errors
    /// The bus fails.
    pub fn submit(&mut self, sq: &mut Sq, sqe: Sqe) -> Verdict<u16> {
        let cid = self.put(sq, sqe);
        self.ring_sq(sq)?;
        Ok(cid)
    }

    /// Names the command of a completion, which must be in flight.
    ///
    /// # Errors
    /// It is not.
    pub fn known(&mut self, mut cqe: Cqe) -> Verdict<Cqe> {
        let (sqid, cid) = (cqe.sq_id(), cqe.cid());
        let of = |(q, c, _): &(u16, u16, String)| u32::from(*q) == sqid && *c == cid;
        match self.in_flight.iter().position(of) {
            Some(at) => {
                cqe.of = self.in_flight.remove(at).2;
                Ok(cqe)
            }
            None => fail(format!(
                "a completion for command {cid:#x} of submission queue {sqid:#x}, which is not in flight: {:08x?}",
                cqe.dwords
            )),
        }
    }

    /// Takes a completion where there is one, and gives its entry back.
    ///
    /// # Errors
    /// It is for no command, or the bus fails.
    pub fn poll(&mut self, cq: &mut Cq) -> Verdict<Option<Cqe>> {
        self.bus.turn();
        match cq.take() {
            None => Ok(None),
            Some(cqe) => {
                self.ring_cq(cq)?;
                self.known(cqe).map(Some)
            }
        }
    }

    /// Waits for a completion.
    ///
    /// # Errors
    /// None comes within the bound; those of [`Self::poll`].
    pub fn wait(&mut self, cq: &mut Cq) -> Verdict<Cqe> {
        let mut found = None;
        self.until(self.options.bound, |bench| {
            found = bench.poll(cq)?;
            Ok(found.is_some())
        })?;
        match found {
            Some(cqe) => Ok(cqe),
            None => {
                let waiting: Vec<&str> = self.in_flight.iter().map(|c| &*c.2).collect();
                fail(format!(
                    "no completion within {:?} in completion queue {}; in flight: {}; CSTS {:#x}",
                    self.options.bound,
                    cq.id,
                    waiting.join("; "),
                    self.csts()?
                ))
            }
        }
    }

    /// Fails if a completion comes although none should.
    ///
    /// # Errors
    /// One does.
    pub fn expect_nothing(&mut self, cq: &Cq, why: &str) -> Verdict {
        let came = self.until(self.options.quiet, |_| Ok(cq.peek().is_some()))?;
        check(!came, || {
            let cqe = cq.peek().unwrap_or_default();
            format!("{why}: a completion was posted: {:08x?}", cqe.dwords)
        })
    }

    /// Does a command and waits for its completion, the only one in flight in
    /// its queue.
    ///
    /// # Errors
    /// Another completes, or none.
    pub fn run(&mut self, pair: &mut Pair, sqe: Sqe) -> Verdict<Cqe> {
        let cid = self.submit(&mut pair.sq, sqe)?;
        let cqe = self.wait(&mut pair.cq)?;
        same("completion's command identifier", cqe.cid(), cid)?;
        same("completion's SQ identifier", cqe.sq_id(), pair.sq.id.into())?;
        Ok(cqe)
    }

    /// Submits an admin command.
    ///
    /// # Errors
    /// The controller was not started, or the bus fails.
    pub fn admin_submit(&mut self, sqe: Sqe) -> Verdict<u16> {
        self.with_admin(|bench, pair| bench.submit(&mut pair.sq, sqe))
    }

    /// Takes admin completions until that of `cid` is there; others are kept for
    /// who asks for them.
    ///
    /// # Errors
    /// It does not come.
    pub fn admin_wait(&mut self, cid: u16) -> Verdict<Cqe> {
        loop {
            if let Some(at) = self.stash.iter().position(|cqe| cqe.cid() == cid) {
                return Ok(self.stash.remove(at));
            }
            let cqe = self.with_admin(|bench, pair| bench.wait(&mut pair.cq))?;
            self.stash.push(cqe);
        }
    }

    /// Whether an admin command completes in the time in which nothing should
    /// happen.
    ///
    /// # Errors
    /// The bus fails.
    pub fn admin_completes(&mut self, cid: u16) -> Verdict<bool> {
        self.until(self.options.quiet, |bench| {
            if let Some(cqe) = bench.with_admin(|bench, pair| bench.poll(&mut pair.cq))? {
                bench.stash.push(cqe);
            }
            Ok(bench.stash.iter().any(|cqe| cqe.cid() == cid))
        })
    }

    /// Does an admin command and waits for its completion.
    ///
    /// # Errors
    /// It does not complete.
    pub fn admin(&mut self, sqe: Sqe) -> Verdict<Cqe> {
        let cid = self.admin_submit(sqe)?;
        self.admin_wait(cid)
    }

    /// As [`Self::admin`], also for commands on queues, which the bus of a host over fabrics
    /// answers itself: they are sent to the target.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn admin_of_target(&mut self, sqe: Sqe) -> Verdict<Cqe> {
        match self.bus().fabrics() {
            None => self.admin(sqe),
            Some(fabrics) => Ok(Cqe {
                dwords: fabrics.execute(&sqe.bytes())?,
                of: sqe.to_string(),
            }),
        }
    }

    /// Works on the admin queues.
    ///
    /// # Errors
    /// There are none, or the work fails.
    pub fn with_admin<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Pair) -> Verdict<T>,
    ) -> Verdict<T> {
        let Some(mut pair) = self.admin.take() else {
            return fail("the controller was not started");
        };
        let done = work(self, &mut pair);
        // A test may have started the controller again meanwhile.
        self.admin.get_or_insert(pair);
        done
    }
}
