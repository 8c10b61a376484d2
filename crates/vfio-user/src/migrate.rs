//! The client's requests of a migration: which state a device is in, and its bytes.
//!
//! A transition is complete when its reply comes. Each request is bounded as every other one.

use std::time::Duration;

use crate::client::{Client, ClientError};
use crate::message::{
    DeviceFeature, DeviceState, FeatureFlags, LoggingControl, LoggingRange, LoggingReport,
    MigrationData, MigrationFlags, MigrationState,
};
use crate::{Command, Malformed};

impl Client {
    /// Whether the server can stop the device and copy its state.
    ///
    /// # Errors
    /// [`ClientError`]; a server that refuses says no.
    pub fn can_migrate(&mut self, timeout: Duration) -> Result<bool, ClientError> {
        let flags = FeatureFlags::GET | FeatureFlags::MIGRATION;
        match self.feature(flags, &[], 8, timeout) {
            Ok(data) => {
                let word = data.try_into();
                let word = word.map_err(|_| ClientError::Mismatch(Command::DEVICE_FEATURE))?;
                Ok(u64::from_le_bytes(word) & MigrationFlags::STOP_COPY != 0)
            }
            Err(ClientError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The state that the device is in.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn migration_state(&mut self, timeout: Duration) -> Result<MigrationState, ClientError> {
        let flags = FeatureFlags::GET | FeatureFlags::MIG_DEVICE_STATE;
        let data = self.feature(flags, &[], DeviceState::LEN, timeout)?;
        Ok(DeviceState::parse(&data)?.state)
    }

    /// Has the device take a state.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the transition does not exist or has failed, and
    /// [`Self::migration_state`] says where the device is.
    pub fn set_migration_state(
        &mut self,
        state: MigrationState,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let flags = FeatureFlags::SET | FeatureFlags::MIG_DEVICE_STATE;
        let mut data = Vec::new();
        DeviceState { state, data_fd: 0 }.encode(&mut data);
        self.feature(flags, &data, DeviceState::LEN, timeout)?;
        Ok(())
    }

    /// The next bytes of the state of a device in STOP_COPY, `size` at most. Fewer are the last.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read_migration_data(
        &mut self,
        size: u32,
        timeout: Duration,
    ) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        MigrationData {
            argsz: size.saturating_add(MigrationData::LEN as u32),
            size,
        }
        .encode(&mut body);
        let reply = self.request(Command::MIG_DATA_READ, &[&body], &[], timeout)?;
        let (head, data) = MigrationData::parse_with_data(&reply.body)?;
        if head.size > size {
            return Err(ClientError::Mismatch(Command::MIG_DATA_READ));
        }
        Ok(data.to_vec())
    }

    /// Gives the next bytes of a state to a device in RESUMING.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_migration_data(
        &mut self,
        data: &[u8],
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let size = u32::try_from(data.len()).map_err(|_| ClientError::Refused(0))?;
        let mut head = Vec::new();
        MigrationData {
            argsz: size.saturating_add(MigrationData::LEN as u32),
            size,
        }
        .encode(&mut head);
        self.request(Command::MIG_DATA_WRITE, &[&head, data], &[], timeout)?;
        Ok(())
    }

    /// Has the device log the pages that it writes from now on, `len` bytes from `iova` on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn start_logging(
        &mut self,
        ranges: &[LoggingRange],
        page_size: u64,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let num_ranges = u32::try_from(ranges.len()).map_err(|_| ClientError::Refused(0))?;
        let mut data = Vec::new();
        LoggingControl {
            page_size,
            num_ranges,
            reserved: 0,
        }
        .encode(&mut data);
        ranges.iter().for_each(|range| range.encode(&mut data));
        let flags = FeatureFlags::SET | FeatureFlags::DMA_LOGGING_START;
        self.feature(flags, &data, data.len(), timeout)?;
        Ok(())
    }

    /// Ends that.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stop_logging(&mut self, timeout: Duration) -> Result<(), ClientError> {
        let flags = FeatureFlags::SET | FeatureFlags::DMA_LOGGING_STOP;
        self.feature(flags, &[], 0, timeout)?;
        Ok(())
    }

    /// The pages of a range that the device has written since it was asked last: a bit for each.
    ///
    /// # Errors
    /// [`ClientError`]. A server that refuses has lost the log: start again, and copy all memory.
    pub fn report_logging(
        &mut self,
        asked: LoggingReport,
        timeout: Duration,
    ) -> Result<Vec<u64>, ClientError> {
        let words = (asked.length / asked.page_size.max(1)).div_ceil(64);
        let words = usize::try_from(words).map_err(|_| ClientError::Refused(0))?;
        let mut data = Vec::new();
        asked.encode(&mut data);
        let len = LoggingReport::LEN + words * 8;
        let flags = FeatureFlags::GET | FeatureFlags::DMA_LOGGING_REPORT;
        let reply = self.feature(flags, &data, len, timeout)?;
        let (words, _) = reply[LoggingReport::LEN..].as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Asks about a feature; the data of the reply.
    fn feature(
        &mut self,
        flags: FeatureFlags,
        data: &[u8],
        len: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, ClientError> {
        let mut head = Vec::new();
        DeviceFeature {
            argsz: (DeviceFeature::LEN + len) as u32,
            flags,
        }
        .encode(&mut head);
        let reply = self.request(Command::DEVICE_FEATURE, &[&head, data], &[], timeout)?;
        if flags.contains(FeatureFlags::SET) {
            return Ok(Vec::new());
        }
        let (_, data) = DeviceFeature::parse_with_data(&reply.body)?;
        let data = data.get(..len).ok_or(Malformed::Short {
            expected: DeviceFeature::LEN + len,
            actual: reply.body.len(),
        })?;
        Ok(data.to_vec())
    }
}
