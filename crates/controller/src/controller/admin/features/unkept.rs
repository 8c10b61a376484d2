//! Set Features with SV whose value is not on stable storage yet: the previous values of the
//! feature, so that a failed save changes nothing.
//!
//! Several saves may be in flight. Each restores only words that still hold the value that it set,
//! here and in the previous values that later saves would restore. So the order in which they fail
//! does not matter.

use nvme_spec::Sqe;
use nvme_spec::command::SetFeaturesCdw10;
use nvme_spec::features::FeatureId;

use super::{Features, Values};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Unkept {
    /// The command.
    sqe: Sqe,
    /// Words before it and after it, as [`Values::words_of`] lists them.
    current: Vec<u32>,
    saved: Vec<u32>,
    set: Vec<u32>,
}

impl Unkept {
    /// Before the command is done.
    pub(super) fn before(sqe: &Sqe, current: &mut Values, saved: &mut Values) -> Self {
        Unkept {
            sqe: *sqe,
            current: current.words(sqe),
            saved: saved.words(sqe),
            set: Vec::new(),
        }
    }

    /// After it.
    pub(super) fn done(mut self, current: &mut Values) -> Self {
        self.set = current.words(&self.sqe);
        self
    }
}

impl Values {
    fn words(&mut self, sqe: &Sqe) -> Vec<u32> {
        let words = self.words_of(sqe).into_iter();
        words.map(|(word, mask)| *word & mask).collect()
    }

    fn put_back(&mut self, sqe: &Sqe, set: &[u32], before: &[u32]) {
        for ((word, mask), (set, before)) in
            self.words_of(sqe).into_iter().zip(set.iter().zip(before))
        {
            if *word & mask == *set {
                *word = *word & !mask | before;
            }
        }
    }
}

impl Features {
    /// A value that was to be saved is on stable storage.
    pub(crate) fn kept(&mut self, cid: u16) {
        self.unkept.retain(|unkept| unkept.sqe.cid != cid);
    }

    /// A value could not be saved: current and saved value are those from before the command. The
    /// feature; `None` where the command set none.
    pub(crate) fn not_kept(&mut self, cid: u16) -> Option<FeatureId> {
        let at = self.unkept.iter().position(|u| u.sqe.cid == cid)?;
        let failed = self.unkept.remove(at);
        let Unkept { sqe, set, .. } = &failed;
        self.current.put_back(sqe, set, &failed.current);
        self.saved.put_back(sqe, set, &failed.saved);
        let named = |sqe: &Sqe| (sqe.cdw10 as u8, Values::selector(sqe), sqe.nsid);
        for later in &mut self.unkept[at..] {
            if named(&later.sqe) != named(sqe) {
                continue;
            }
            let befores = [
                (&mut later.current, &failed.current),
                (&mut later.saved, &failed.saved),
            ];
            for (words, before) in befores {
                for (word, (set, before)) in words.iter_mut().zip(set.iter().zip(before)) {
                    if word == set {
                        *word = *before;
                    }
                }
            }
        }
        Some(SetFeaturesCdw10::from(sqe.cdw10).fid())
    }
}
