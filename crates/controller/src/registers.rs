//! The controller's properties in BAR0 (Base 2.1, 3.1.4), without the doorbells.
//!
//! A write is answered at once: it changes the value that reads back and leaves a request (enable,
//! reset, shut down) that [`crate::Controller::turn`] fulfils; CSTS follows only then. A host reads
//! and writes in dwords or qwords on their own boundary (PCIe Transport 1.1, 3.1.1). Any other read
//! is served bytewise; a write that covers only a part of a dword has no defined result and is
//! dropped.

use nvme_spec::registers::{
    ACQ, AQA, ASQ, Aqa, CAP, CC, CRTO, CSTS, Cap, Cc, Crto, Csts, INTMC, INTMS, NSSR, NSSR_MAGIC,
    ShutdownStatus, VS, Version,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::ControllerConfig;

/// CAP.TO and CRTO.CRWMT: ten seconds, in units of 500 ms. Both edges of RDY come within 4 s; the
/// rest is margin.
const READY_TIMEOUT: u8 = 20;

/// CAP.AMS: weighted round robin with urgent priority class, beside round robin.
const AMS_WEIGHTED: u8 = 0b01;

/// The registers as they are saved.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SavedRegisters {
    /// ASQ.
    pub asq: u64,
    /// ACQ.
    pub acq: u64,
    /// CC.
    pub cc: u32,
    /// CSTS.
    pub csts: u32,
    /// AQA.
    pub aqa: u32,
    /// INTMS and INTMC.
    pub interrupt_mask: u32,
    /// 1: CC.EN was cleared and the reset has not finished.
    pub reset_wanted: u32,
    /// 1: NSSR was written and the reset has not begun.
    pub subsystem_reset_wanted: u32,
}

/// The registers, and the requests of their last writes.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    cap: Cap,
    cc: Cc,
    csts: Csts,
    interrupt_mask: u32,
    aqa: Aqa,
    asq: u64,
    acq: u64,
    /// INTMC has cleared a mask bit.
    unmasked: bool,
    /// CC.EN went from 1 to 0 and the reset has not finished.
    reset_wanted: bool,
    /// NSSR was written with its magic number.
    subsystem_reset_wanted: bool,
}

/// A register that is written in halves of 32 bits.
fn with_half(register: u64, upper: bool, value: u32) -> u64 {
    if upper {
        register & 0xffff_ffff | u64::from(value) << 32
    } else {
        register & !0xffff_ffff | u64::from(value)
    }
}

fn halves(register: u64) -> [u32; 2] {
    [(register & 0xffff_ffff) as u32, (register >> 32) as u32]
}

impl Registers {
    pub(crate) fn new(config: &ControllerConfig) -> Self {
        // Over fabrics, an NVM Subsystem Reset of one host would end every other association, and
        // weights are of queues that Connect made.
        let over_fabrics = config.is_over_fabrics();
        let cap = Cap::new()
            .with_mqes_z(config.queue_depth - 1)
            .with_cqr(true)
            .with_ams(if over_fabrics { 0 } else { AMS_WEIGHTED })
            .with_to(READY_TIMEOUT)
            .with_nssrs(!over_fabrics)
            .with_css_nvm(true)
            .with_css_iocs(true)
            .with_crwms(true);
        Registers {
            cap,
            cc: Cc::new(),
            csts: Csts::new(),
            interrupt_mask: 0,
            aqa: Aqa::new(),
            asq: 0,
            acq: 0,
            unmasked: false,
            reset_wanted: false,
            subsystem_reset_wanted: false,
        }
    }

    /// Everything a successor needs; CAP follows from the configuration.
    pub(crate) fn saved(&self) -> SavedRegisters {
        let Registers {
            cap: _,
            cc,
            csts,
            interrupt_mask,
            aqa,
            asq,
            acq,
            // A successor looks again at unmasked vectors in any case.
            unmasked: _,
            reset_wanted,
            subsystem_reset_wanted,
        } = self;
        SavedRegisters {
            asq: *asq,
            acq: *acq,
            cc: (*cc).into(),
            csts: (*csts).into(),
            aqa: (*aqa).into(),
            interrupt_mask: *interrupt_mask,
            reset_wanted: u32::from(*reset_wanted),
            subsystem_reset_wanted: u32::from(*subsystem_reset_wanted),
        }
    }

    /// Those that a process which died has saved.
    pub(crate) fn restore(&mut self, saved: &SavedRegisters) {
        let SavedRegisters {
            asq,
            acq,
            cc,
            csts,
            aqa,
            interrupt_mask,
            reset_wanted,
            subsystem_reset_wanted,
        } = *saved;
        *self = Registers {
            cap: self.cap,
            cc: cc.into(),
            csts: csts.into(),
            interrupt_mask,
            aqa: aqa.into(),
            asq,
            acq,
            unmasked: false,
            reset_wanted: reset_wanted != 0,
            subsystem_reset_wanted: subsystem_reset_wanted != 0,
        };
    }

    pub(crate) fn cap(&self) -> Cap {
        self.cap
    }

    pub(crate) fn cc(&self) -> Cc {
        self.cc
    }

    pub(crate) fn csts(&self) -> Csts {
        self.csts
    }

    pub(crate) fn aqa(&self) -> Aqa {
        self.aqa
    }

    pub(crate) fn asq(&self) -> u64 {
        self.asq
    }

    pub(crate) fn acq(&self) -> u64 {
        self.acq
    }

    /// The vectors that INTMS masked; it has no say while MSI-X is enabled.
    pub(crate) fn interrupt_mask(&self) -> u32 {
        self.interrupt_mask
    }

    /// Whether INTMC has cleared a mask bit since the last call.
    pub(crate) fn take_unmasked(&mut self) -> bool {
        std::mem::take(&mut self.unmasked)
    }

    pub(crate) fn reset_wanted(&self) -> bool {
        self.reset_wanted
    }

    pub(crate) fn take_subsystem_reset(&mut self) -> bool {
        std::mem::take(&mut self.subsystem_reset_wanted)
    }

    /// Ready: whatever the status said before, of a shutdown while disabled or of its failure, is
    /// over.
    pub(crate) fn start(&mut self) {
        self.csts = Csts::new().with_rdy(true).with_nssro(self.csts.nssro());
    }

    pub(crate) fn set_fatal(&mut self) {
        self.csts.set_cfs(true);
    }

    pub(crate) fn set_shutdown_status(&mut self, status: ShutdownStatus) {
        self.csts.set_shst(status);
    }

    /// A Controller Reset is done (Base 2.1, 3.7.2): the status is reset; AQA, ASQ and ACQ stay, as
    /// do the values that the host wrote to CC with, or after, the write that cleared EN.
    pub(crate) fn finish_reset(&mut self) {
        self.csts = Csts::new().with_nssro(self.csts.nssro());
        self.interrupt_mask = 0;
        self.reset_wanted = false;
    }

    /// A Controller Level Reset of any other kind begins: every register, the admin queue's too,
    /// but RDY, which falls in [`Registers::finish_reset`]. `subsystem`: it is an NVM Subsystem
    /// Reset, which leaves its mark in CSTS.
    pub(crate) fn power_on(&mut self, subsystem: bool) {
        self.cc = Cc::new();
        self.csts = Csts::new().with_rdy(self.csts.rdy()).with_nssro(subsystem);
        self.interrupt_mask = 0;
        (self.aqa, self.asq, self.acq) = (Aqa::new(), 0, 0);
        self.reset_wanted = false;
        self.subsystem_reset_wanted = false;
    }

    /// Reads `out.len()` bytes; unimplemented registers read as zero.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        for (at, byte) in (offset..).zip(out.iter_mut()) {
            *byte = self.dword(at & !3).to_le_bytes()[(at & 3) as usize];
        }
    }

    fn dword(&self, offset: u64) -> u32 {
        const CAP_HIGH: u64 = CAP + 4;
        const ASQ_HIGH: u64 = ASQ + 4;
        const ACQ_HIGH: u64 = ACQ + 4;
        match offset {
            CAP => halves(self.cap.into())[0],
            CAP_HIGH => halves(self.cap.into())[1],
            VS => Version::V2_1.into(),
            INTMS | INTMC => self.interrupt_mask,
            CC => self.cc.into(),
            CSTS => self.csts.into(),
            AQA => self.aqa.into(),
            ASQ => halves(self.asq)[0],
            ASQ_HIGH => halves(self.asq)[1],
            ACQ => halves(self.acq)[0],
            ACQ_HIGH => halves(self.acq)[1],
            CRTO => Crto::new().with_crwmt(READY_TIMEOUT.into()).into(),
            _ => 0,
        }
    }

    /// Writes every whole dword of `data`; returns whether anything may have changed.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let skip = (offset.wrapping_neg() & 3) as usize;
        let dwords = data.get(skip..).unwrap_or(&[]).chunks_exact(4);
        let mut at = offset.saturating_add(skip as u64);
        let mut changed = false;
        for dword in dwords {
            let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            changed |= self.write_dword(at, value);
            at = at.saturating_add(4);
        }
        changed
    }

    fn write_dword(&mut self, offset: u64, value: u32) -> bool {
        const ASQ_HIGH: u64 = ASQ + 4;
        const ACQ_HIGH: u64 = ACQ + 4;
        let enabled = self.cc.en();
        match offset {
            INTMS => self.interrupt_mask |= value,
            INTMC => {
                self.unmasked |= self.interrupt_mask & value != 0;
                self.interrupt_mask &= !value;
            }
            CC => self.write_cc(Cc::from(value)),
            // Cleared by writing one (Base 2.1, 3.1.4.6).
            CSTS if Csts::from(value).nssro() => self.csts.set_nssro(false),
            NSSR if value == NSSR_MAGIC && self.cap.nssrs() => self.subsystem_reset_wanted = true,
            // The admin queue may change only while the controller is disabled (Base 2.1, 3.1.4.8
            // to 3.1.4.10): what reads back is what is in use.
            AQA if !enabled => {
                let aqa = Aqa::from(value);
                self.aqa = Aqa::new()
                    .with_asqs_z(aqa.asqs_z())
                    .with_acqs_z(aqa.acqs_z());
            }
            ASQ if !enabled => self.asq = with_half(self.asq, false, value),
            ASQ_HIGH if !enabled => self.asq = with_half(self.asq, true, value),
            ACQ if !enabled => self.acq = with_half(self.acq, false, value),
            ACQ_HIGH if !enabled => self.acq = with_half(self.acq, true, value),
            _ => return false,
        }
        true
    }

    fn write_cc(&mut self, wanted: Cc) {
        let old = self.cc;
        // Reserved bits, and CRIME as CAP.CRIMS is 0, read as zero.
        let mut cc = Cc::new()
            .with_en(wanted.en())
            .with_css(wanted.css())
            .with_mps(wanted.mps())
            .with_ams(wanted.ams())
            .with_shn(wanted.shn())
            .with_iosqes(wanted.iosqes())
            .with_iocqes(wanted.iocqes());
        if old.en() && cc.en() {
            // These may change only while disabled (Base 2.1, 3.1.4.5).
            cc = cc
                .with_css(old.css())
                .with_mps(old.mps())
                .with_ams(old.ams());
        }
        if old.en() && !cc.en() {
            self.reset_wanted = true;
            // A host waits for RDY to be 0. Where it was never 1, it goes on at once, and must not
            // meet what made enabling fail (Base 2.1, 3.1.4.6: a reset clears CFS).
            if !self.csts.rdy() {
                self.csts.set_cfs(false);
            }
        }
        self.cc = cc;
    }
}
