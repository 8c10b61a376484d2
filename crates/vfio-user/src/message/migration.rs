//! `DEVICE_FEATURE`, `MIG_DATA_READ` and `MIG_DATA_WRITE`: how a client moves a device's state to
//! another server.
//!
//! A feature's data follow the head, in the request of a SET and in the reply to a GET. A reply to
//! `MIG_DATA_READ` with fewer bytes than were asked for is the end of the state.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::{Malformed, plain_body, split_prefix};

flags! {
    /// The feature, in the lower 16 bits, and what is asked.
    FeatureFlags {
        /// The reply has the value.
        GET = 1 << 16;
        /// The request has the value.
        SET = 1 << 17;
        /// Whether the feature can be used so, without using it.
        PROBE = 1 << 18;
    }
}

impl FeatureFlags {
    /// Which states a device can take: a word of [`MigrationFlags`].
    pub const MIGRATION: Self = Self(1);
    /// The state: [`DeviceState`].
    pub const MIG_DEVICE_STATE: Self = Self(2);
    /// Begins to log the pages that the device writes: [`super::LoggingControl`].
    pub const DMA_LOGGING_START: Self = Self(6);
    /// Ends that.
    pub const DMA_LOGGING_STOP: Self = Self(7);
    /// Reports and forgets what was logged: [`super::LoggingReport`].
    pub const DMA_LOGGING_REPORT: Self = Self(8);
    const INDEX: u32 = 0xffff;

    /// The number of the feature.
    pub fn index(self) -> u32 {
        self.0 & Self::INDEX
    }
}

/// Value of the feature MIGRATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationFlags(pub u64);

impl MigrationFlags {
    /// The device can be stopped, and then copied. Every device that migrates has this one.
    pub const STOP_COPY: u64 = 1;
}

/// The head of `DEVICE_FEATURE`, in requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceFeature {
    /// Longest body that the client takes, in bytes.
    pub argsz: u32,
    /// The feature, and what is asked.
    pub flags: FeatureFlags,
}
plain_body!(DeviceFeature, 8);

impl DeviceFeature {
    /// The head, and the feature's data.
    ///
    /// # Errors
    /// [`Malformed::Short`].
    pub fn parse_with_data(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        split_prefix(body)
    }
}

/// State of a device that migrates. Open: any number that a client sends can be held.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct MigrationState(pub u32);

impl MigrationState {
    /// A transition has failed; only a reset helps.
    pub const ERROR: Self = Self(0);
    /// Nothing is changed, in the device or by it.
    pub const STOP: Self = Self(1);
    /// As usual.
    pub const RUNNING: Self = Self(2);
    /// As STOP, and the state can be read.
    pub const STOP_COPY: Self = Self(3);
    /// As STOP, and a state can be written.
    pub const RESUMING: Self = Self(4);

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ERROR => "ERROR",
            Self::STOP => "STOP",
            Self::RUNNING => "RUNNING",
            Self::STOP_COPY => "STOP_COPY",
            Self::RESUMING => "RESUMING",
            _ => "an unknown state",
        }
    }
}

impl std::fmt::Debug for MigrationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// Value of the feature MIG_DEVICE_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceState {
    /// The state.
    pub state: MigrationState,
    /// Not used by vfio-user.
    pub data_fd: u32,
}
plain_body!(DeviceState, 8);

/// The head of `MIG_DATA_READ` and `MIG_DATA_WRITE`, in requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MigrationData {
    /// Longest body that the client takes, in bytes.
    pub argsz: u32,
    /// Length of the data, in bytes.
    pub size: u32,
}
plain_body!(MigrationData, 8);

impl MigrationData {
    /// The head and the data after it, as long as its size says.
    ///
    /// # Errors
    /// [`Malformed`] where the data are longer or shorter.
    pub fn parse_with_data(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, data) = split_prefix::<Self>(body)?;
        if data.len() as u64 != u64::from(head.size) {
            return Err(Malformed::DataLength {
                count: head.size.into(),
                actual: data.len(),
            });
        }
        Ok((head, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_the_specification_s() {
        let mut bytes = Vec::new();
        DeviceFeature {
            argsz: 16,
            flags: FeatureFlags::SET | FeatureFlags::MIG_DEVICE_STATE,
        }
        .encode(&mut bytes);
        DeviceState {
            state: MigrationState::STOP_COPY,
            data_fd: 0,
        }
        .encode(&mut bytes);
        assert_eq!(bytes, [16, 0, 0, 0, 2, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let (head, data) = DeviceFeature::parse_with_data(&bytes).unwrap();
        assert_eq!((head.flags.index(), data.len()), (2, 8));
        assert!(!head.flags.contains(FeatureFlags::GET));
        assert!(!head.flags.contains(FeatureFlags::PROBE));
    }

    #[test]
    fn data_are_as_long_as_their_size() {
        let bytes = [16, 0, 0, 0, 2, 0, 0, 0, 7, 8];
        let (head, data) = MigrationData::parse_with_data(&bytes).unwrap();
        assert_eq!((head.argsz, head.size, data), (16, 2, &[7, 8][..]));
        for wrong in [&bytes[..9], &bytes[..7], &[bytes.as_slice(), &[9]].concat()] {
            assert!(MigrationData::parse_with_data(wrong).is_err());
        }
    }
}
