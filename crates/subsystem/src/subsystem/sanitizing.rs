//! The steps of a Sanitize command (Base 2.1, 5.1.22 and 8.1.24), and what hosts read of its
//! progress.
//!
//! Other subsystems may have namespaces on the same media: only this one's namespaces, and the
//! space between them in its pools, are touched.

use nvme_spec::sanitize::{
    ESTIMATE_NOT_REPORTED, SPROG_DONE, SanitizeAction, SanitizeCdw10, SanitizeOperationStatus,
    SanitizeStatus, SanitizeStatusLog,
};
use nvme_spec::{NSID_ALL, Status};
use zerocopy::FromZeros;

use super::Subsystem;
use crate::allocated::Allocated;
use crate::directory::Change;
use crate::erase::{Erase, Round};
use crate::operation::{Operation, Requester, Step};
use crate::sanitize::{SanitizeChange, SanitizeNews, SanitizeOutcome, SanitizeRecord};
use crate::set::ControllerId;

/// The rounds over all targets, one after the other (Base 2.1, figure 647).
fn rounds(cdw10: SanitizeCdw10, pattern: u32) -> Vec<Round> {
    let deallocate = !cdw10.ndas();
    if cdw10.sanact() == SanitizeAction::START_BLOCK_ERASE {
        return vec![Round::Zero { deallocate }];
    }
    let passes = cdw10.overwrite_passes();
    // Where it is inverted between passes, the last one writes the pattern itself.
    let inverted = |pass: u8| cdw10.oipbp() && (passes - 1 - pass) % 2 == 1;
    let word = |pass| if inverted(pass) { !pattern } else { pattern };
    let mut rounds: Vec<Round> = (0..passes).map(|pass| Round::Pattern(word(pass))).collect();
    if deallocate {
        rounds.push(Round::Zero { deallocate });
    }
    rounds
}

impl Subsystem {
    /// Checks of a Sanitize command that depend on the operation before it (Base 2.1, 8.1.24.3).
    fn check_sanitize(&self, unrestricted: bool) -> Result<(), Status> {
        let sanitize = self.directory.sanitize();
        if sanitize.is_in_progress() {
            return Err(Status::SANITIZE_IN_PROGRESS);
        }
        // After a failure in restricted completion mode, that mode is all that is left.
        let restricted = !SanitizeCdw10::from(sanitize.record().cdw10).ause();
        if sanitize.is_in_failure() && restricted && unrestricted {
            return Err(Status::SANITIZE_FAILED);
        }
        Ok(())
    }

    pub(super) fn plan_sanitize(
        &self,
        cdw10: SanitizeCdw10,
        pattern: u32,
        controller: ControllerId,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        self.check_sanitize(cdw10.ause())?;
        for namespace in self.directory.iter() {
            namespace.check_writable()?;
            self.check_reservation(namespace.nsid(), operation)?;
        }
        let before = self.directory.sanitize().clone();
        // Where the state cannot be kept, nothing has begun.
        operation.on_failure = vec![Change::RestoreSanitize(Box::new(before))];
        let begin = SanitizeChange::Begin {
            cdw10,
            pattern,
            controller,
        };
        let on_failure = vec![Change::Sanitize(SanitizeChange::Fail)];
        let mut steps = vec![
            Step::Change(Change::Sanitize(begin)),
            Step::Keep,
            Step::Answer { on_failure },
        ];
        steps.extend(self.sanitize_steps(cdw10, pattern));
        Ok(steps)
    }

    /// The steps after the state is set to in progress.
    fn sanitize_steps(&self, cdw10: SanitizeCdw10, pattern: u32) -> Vec<Step> {
        let mut erase = Erase::of(Vec::new(), rounds(cdw10, pattern));
        self.directory.iter().for_each(|n| erase.add(n));
        let unallocated = self.directory.unallocated().into_iter();
        erase
            .targets
            .extend(unallocated.filter(|(_, range)| range.len > 0));
        let readable = |n: &Allocated| {
            Step::Change(Change::ClearUncorrectable {
                nsid: n.nsid(),
                slba: 0,
                blocks: u64::MAX,
            })
        };
        let mut steps = vec![Step::Drain, Step::Erase(erase)];
        steps.extend(self.directory.iter().map(readable));
        steps.extend([
            Step::Change(Change::Sanitize(SanitizeChange::Succeed)),
            Step::Keep,
            Step::Change(Change::Sanitize(SanitizeChange::Release)),
        ]);
        steps
    }

    /// Continues the operation that was in progress when the program ended, from the start.
    pub(super) fn resume_sanitize(&mut self) {
        let record = self.directory.sanitize().record();
        if record.outcome == SanitizeOutcome::InProgress {
            let steps = self.sanitize_steps(record.cdw10.into(), record.pattern);
            let mut operation = Operation::new(Requester::Internal, NSID_ALL, steps);
            operation.on_failure = vec![Change::Sanitize(SanitizeChange::Fail)];
            self.begin(operation);
        }
    }

    pub(super) fn plan_exit_failure_mode(&self) -> Result<Vec<Step>, Status> {
        self.check_sanitize(true)?;
        // Where nothing failed there is nothing to do, and that is no error (Base 2.1, 8.1.24.3.1).
        if !self.directory.sanitize().is_in_failure() {
            return Ok(Vec::new());
        }
        let exit = Change::Sanitize(SanitizeChange::ExitFailureMode);
        Ok(vec![Step::Change(exit), Step::Keep])
    }

    /// Tells controllers of a change.
    pub(super) fn spread_sanitize_news(&mut self, change: SanitizeChange) {
        let asked = self.directory.sanitize().record().controller;
        for member in &mut self.members {
            match change {
                SanitizeChange::Begin { .. } => member.sanitize_news = Some(SanitizeNews::Began),
                SanitizeChange::Release | SanitizeChange::Fail if Some(member.id) == asked => {
                    member.sanitize_news = Some(SanitizeNews::Ended);
                }
                _ => (),
            }
        }
    }

    /// News for a controller.
    #[inline]
    pub fn take_sanitize_news(&mut self, id: ControllerId) -> Option<SanitizeNews> {
        self.member_mut(id)?.sanitize_news.take()
    }

    /// Whether a sanitize operation has erased everything, and no controller has reported written
    /// user data since.
    #[inline]
    pub fn is_data_erased(&self) -> bool {
        self.directory.sanitize().record().data_erased
    }

    /// User data was written.
    pub fn data_written(&mut self) {
        if self.directory.note_data() {
            self.touch();
        }
    }

    /// The Sanitize Status log page (Base 2.1, 5.1.12.1.33). No estimate is reported: it depends on
    /// the other load of the media.
    #[must_use]
    pub fn sanitize_log(&self) -> SanitizeStatusLog {
        let sanitize = self.directory.sanitize();
        let SanitizeRecord {
            outcome,
            cdw10,
            pattern: _,
            passes,
            failure_left: _,
            data_erased,
            controller: _,
        } = *sanitize.record();
        let in_progress = sanitize.is_in_progress();
        let sos = match outcome {
            _ if in_progress => SanitizeOperationStatus::SANITIZING,
            SanitizeOutcome::Never => SanitizeOperationStatus::NEVER_SANITIZED,
            SanitizeOutcome::InProgress => SanitizeOperationStatus::SANITIZING,
            SanitizeOutcome::Succeeded => SanitizeOperationStatus::SANITIZED,
            SanitizeOutcome::Failed => SanitizeOperationStatus::FAILED,
        };
        let mut log = SanitizeStatusLog::new_zeroed();
        log.sstat = SanitizeStatus::new()
            .with_sos(sos)
            .with_opc(passes)
            .with_gde(data_erased && !in_progress);
        log.sprog = SPROG_DONE;
        if in_progress {
            let erasing = self.operations.erasing(NSID_ALL);
            let done = if sanitize.is_finishing() { u32::MAX } else { 0 };
            let done = erasing.map_or(done, |erasing| erasing.progress(1 << 16));
            log.sprog = done.min(u32::from(SPROG_DONE) - 1) as u16;
        }
        log.scdw10 = cdw10.into();
        for estimate in [
            &mut log.eto,
            &mut log.etbe,
            &mut log.etce,
            &mut log.etond,
            &mut log.etbend,
            &mut log.etcend,
            &mut log.etpvds,
        ] {
            *estimate = ESTIMATE_NOT_REPORTED;
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overwrite_ends_with_its_pattern_however_many_passes_it_has() {
        let overwrite = |passes: u8, oipbp, ndas| {
            SanitizeCdw10::new()
                .with_sanact(SanitizeAction::START_OVERWRITE)
                .with_owpass(passes)
                .with_oipbp(oipbp)
                .with_ndas(ndas)
        };
        let (word, inverse) = (Round::Pattern(0x1234_5678), Round::Pattern(0xedcb_a987));
        let rounds = |cdw10| rounds(cdw10, 0x1234_5678);
        assert_eq!(rounds(overwrite(1, true, true)), [word]);
        assert_eq!(rounds(overwrite(2, true, true)), [inverse, word]);
        assert_eq!(rounds(overwrite(3, true, true)), [word, inverse, word]);
        assert_eq!(rounds(overwrite(3, false, true)), [word; 3]);
        assert_eq!(rounds(overwrite(0, false, true)), [word; 16]);
        let zero = Round::Zero { deallocate: true };
        assert_eq!(rounds(overwrite(1, false, false)), [word, zero]);
    }

    #[test]
    fn a_block_erase_is_one_round_of_zeroes() {
        let cdw10 = SanitizeCdw10::new().with_sanact(SanitizeAction::START_BLOCK_ERASE);
        assert_eq!(rounds(cdw10, 7), [Round::Zero { deallocate: true }]);
        let kept = Round::Zero { deallocate: false };
        assert_eq!(rounds(cdw10.with_ndas(true), 7), [kept]);
    }
}
