//! Restrictions of a controller because of other processes: the one before it, and other servers
//! of its media.

/// The restrictions; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    /// It was restored, and not released: neither it nor its lanes fetch commands.
    until_release: bool,
    /// Its media are another server's: it must not be enabled.
    elsewhere: bool,
}

impl Holds {
    /// It is restored, and may not fetch before [`Self::release`].
    pub(super) fn restored(&mut self) {
        self.until_release = true;
    }

    /// Ends that. True where it was so.
    pub(super) fn release(&mut self) -> bool {
        std::mem::take(&mut self.until_release)
    }

    /// Whether it has to wait for its release.
    #[inline]
    pub(super) fn until_release(self) -> bool {
        self.until_release
    }

    pub(super) fn set_elsewhere(&mut self, elsewhere: bool) {
        self.elsewhere = elsewhere;
    }

    /// Whether its media are another server's.
    pub(super) fn elsewhere(self) -> bool {
        self.elsewhere
    }
}
