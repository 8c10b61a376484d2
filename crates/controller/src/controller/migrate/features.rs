//! The saved values of features in the stream of a controller that moves.
//!
//! Each value is three words, little-endian: what it is, of which namespace or vector, and the
//! value. A value that was never saved is not there. Any bytes may be read; the controller checks
//! the values themselves.

use subsystem::SavedFeatures;

use super::MigrateError;

const ENTRY: usize = 12;
/// More values than any controller has: one for each namespace, vector, and feature.
const MOST: usize = 8192;

const ARBITRATION: u32 = 1;
const POWER_MANAGEMENT: u32 = 2;
const OVER_TEMPERATURE: u32 = 3;
const UNDER_TEMPERATURE: u32 = 4;
const ERROR_RECOVERY: u32 = 5;
const WRITE_CACHE: u32 = 6;
const COALESCING: u32 = 7;
const COALESCING_DISABLED: u32 = 8;
const WRITE_ATOMICITY: u32 = 9;
const EVENTS: u32 = 10;

/// The bytes of these values.
pub(super) fn write(features: &SavedFeatures) -> Vec<u8> {
    let SavedFeatures {
        arbitration,
        power_management,
        over_temperature,
        under_temperature,
        error_recovery,
        volatile_write_cache,
        interrupt_coalescing,
        coalescing_disabled,
        write_atomicity,
        event_configuration,
    } = features;
    let single = [
        (ARBITRATION, *arbitration),
        (POWER_MANAGEMENT, *power_management),
        (OVER_TEMPERATURE, over_temperature.map(u32::from)),
        (UNDER_TEMPERATURE, under_temperature.map(u32::from)),
        (WRITE_CACHE, volatile_write_cache.map(u32::from)),
        (COALESCING, *interrupt_coalescing),
        (WRITE_ATOMICITY, *write_atomicity),
        (EVENTS, *event_configuration),
    ];
    let single = single.into_iter();
    let single = single.filter_map(|(what, value)| Some([what, 0, value?]));
    let recovery = error_recovery.iter();
    let recovery = recovery.map(|(nsid, value)| [ERROR_RECOVERY, *nsid, *value]);
    let disabled = coalescing_disabled.iter();
    let disabled = disabled.map(|vector| [COALESCING_DISABLED, u32::from(*vector), 1]);
    let words = single.chain(recovery).chain(disabled).flatten();
    words.flat_map(u32::to_le_bytes).collect()
}

/// The values of these bytes.
///
/// # Errors
/// They are not whole, too many, or of a feature that is not known.
pub(super) fn read(bytes: &[u8]) -> Result<SavedFeatures, MigrateError> {
    let wrong = || MigrateError::Damaged("its saved features cannot be");
    if !bytes.len().is_multiple_of(ENTRY) || bytes.len() > MOST * ENTRY {
        return Err(wrong());
    }
    let half = |value: u32| u16::try_from(value).map_err(|_| wrong());
    let mut features = SavedFeatures::default();
    for entry in bytes.chunks_exact(ENTRY) {
        let (words, _) = entry.as_chunks::<4>();
        let [what, of, value] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
        match what {
            ARBITRATION => features.arbitration = Some(value),
            POWER_MANAGEMENT => features.power_management = Some(value),
            OVER_TEMPERATURE => features.over_temperature = Some(half(value)?),
            UNDER_TEMPERATURE => features.under_temperature = Some(half(value)?),
            ERROR_RECOVERY => features.error_recovery.push((of, value)),
            WRITE_CACHE => features.volatile_write_cache = Some(value != 0),
            COALESCING => features.interrupt_coalescing = Some(value),
            COALESCING_DISABLED => features.coalescing_disabled.push(half(of)?),
            WRITE_ATOMICITY => features.write_atomicity = Some(value),
            EVENTS => features.event_configuration = Some(value),
            _ => return Err(wrong()),
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_saved_value_is_read_as_it_was_written() {
        let features = SavedFeatures {
            arbitration: Some(1),
            power_management: Some(2),
            over_temperature: Some(353),
            under_temperature: Some(270),
            error_recovery: vec![(1, 5), (3, 0x1_0000)],
            volatile_write_cache: Some(false),
            interrupt_coalescing: Some(0x0203),
            coalescing_disabled: vec![0, 4],
            write_atomicity: Some(1),
            event_configuration: Some(0x1ff),
        };
        assert_eq!(read(&write(&features)).unwrap(), features);
        let none = SavedFeatures::default();
        assert_eq!((write(&none), read(&[]).unwrap()), (Vec::new(), none));
    }

    #[test]
    fn what_is_no_feature_is_refused() {
        let entry = |words: [u32; 3]| words.map(u32::to_le_bytes).concat();
        assert!(read(&entry([11, 0, 1])).is_err() && read(&entry([0, 0, 1])).is_err());
        assert!(read(&entry([OVER_TEMPERATURE, 0, 1 << 16])).is_err());
        assert!(read(&entry([COALESCING_DISABLED, 1 << 16, 1])).is_err());
        assert!(read(&entry([ARBITRATION, 0, 1])[..11]).is_err());
        assert!(read(&vec![0; ENTRY * (MOST + 1)]).is_err());
    }
}
