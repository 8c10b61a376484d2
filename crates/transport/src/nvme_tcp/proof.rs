//! Proof of a host.

use super::judge::Gate;

/// Proof of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// It does not have to prove anything.
    #[default]
    Unasked,
    /// Nothing yet.
    Pending,
    /// That it knows its secret, to make a key of TLS: it comes again with that.
    Concatenated,
    /// That it knows its secret.
    Host,
    /// The same, and the controller has proved that it knows its own.
    Both,
}

impl Proof {
    /// At Connect: of a host that is to prove its secret, and of one whose generated key of TLS
    /// stands for that.
    pub(super) fn of(is_asked: bool, generated: Option<Self>) -> Self {
        if is_asked {
            Self::Pending
        } else {
            generated.unwrap_or(Self::Unasked)
        }
    }

    /// Of an exchange whose host has proved its secret, and whose controller maybe, too.
    pub(super) fn authenticated(both: bool) -> Self {
        if both { Self::Both } else { Self::Host }
    }

    pub(super) fn gate(self) -> Gate {
        match self {
            Self::Unasked => Gate::None,
            Self::Pending | Self::Concatenated => Gate::Closed,
            Self::Host | Self::Both => Gate::Passed,
        }
    }
}
