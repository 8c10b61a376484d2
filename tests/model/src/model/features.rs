//! Features (Base 2.1, 4.4, 5.1.11 and 5.1.25): current and saved values, and what may be asked and
//! set.

use std::collections::BTreeMap;

use super::{
    INVALID_FIELD, INVALID_NAMESPACE, Model, NOT_NAMESPACE_SPECIFIC, NOT_SAVEABLE, SEQUENCE,
    Verdict, is_valid,
};
use crate::QUEUES;

/// Number of Queues.
const NUMBER_OF_QUEUES: u8 = 0x07;
/// Error Recovery: the one that each namespace has for itself.
const ERROR_RECOVERY: u8 = 0x05;
/// Temperature Threshold.
const THRESHOLD: u8 = 0x04;
/// Interrupt Vector Configuration.
const VECTOR: u8 = 0x09;

/// A value: the feature, which of several, and for a namespace's own its NSID.
pub type Key = (u8, u32, u32);

/// The features, as read at the start.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Dword 0 of Supported Capabilities, of features that exist.
    pub supported: BTreeMap<u8, u32>,
    /// Default values.
    pub defaults: BTreeMap<Key, u32>,
}

/// The values.
#[derive(Clone, Debug)]
pub struct Features {
    supported: BTreeMap<u8, u32>,
    defaults: BTreeMap<Key, u32>,
    current: BTreeMap<Key, u32>,
    saved: BTreeMap<Key, u32>,
}

/// Which of several values of a feature Dword 11 names.
#[must_use]
pub fn key(fid: u8, dword: u32, nsid: u32) -> Key {
    match fid {
        THRESHOLD => (fid, dword >> 20 & 3, 0),
        VECTOR => (fid, dword & 0xffff, 0),
        ERROR_RECOVERY => (fid, 0, nsid),
        _ => (fid, 0, 0),
    }
}

impl Features {
    /// Every value is its default.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        Features {
            supported: facts.supported.clone(),
            defaults: facts.defaults.clone(),
            current: facts.defaults.clone(),
            saved: facts.defaults.clone(),
        }
    }

    /// Current values are the saved ones.
    pub fn reset(&mut self) {
        self.current = self.saved.clone();
    }

    /// I/O submission and completion queues that may be made.
    #[must_use]
    pub fn queues(&self) -> (u16, u16) {
        let value = self.current[&key(NUMBER_OF_QUEUES, 0, 0)];
        (value as u16 + 1, (value >> 16) as u16 + 1)
    }
}

/// The kept part of Dword 11, or its fault.
fn value(fid: u8, dword: u32) -> Result<u32, u16> {
    match fid {
        // Arbitration Burst, and three weights.
        0x01 => Ok(dword & 0xffff_ff07),
        // Power State, of which there is 0; Workload Hint.
        0x02 if dword & 0x1f == 0 => Ok(dword & 0xe0),
        THRESHOLD if dword >> 20 & 3 < 2 => Ok(dword & 0xffff),
        // DULBE needs NSFEAT.DAE.
        ERROR_RECOVERY if dword >> 16 & 1 == 0 => Ok(dword & 0xffff),
        0x06 | 0x0a => Ok(dword & 1),
        0x08 => Ok(dword & 0xffff),
        // A vector for each queue pair, and the admin queue's.
        VECTOR if dword & 0xffff <= u32::from(QUEUES) => Ok(dword & 0x1_ffff),
        0x0b => Ok(dword & 0x1ff),
        NUMBER_OF_QUEUES if dword as u16 != 0xffff && dword >> 16 != 0xffff => {
            let most = u32::from(QUEUES) - 1;
            Ok((dword & 0xffff).min(most) | (dword >> 16).min(most) << 16)
        }
        _ => Err(INVALID_FIELD),
    }
}

impl Model {
    /// Get Features of a value that Dword 11 names.
    pub(super) fn get_feature(&self, fid: u8, sel: u8, nsid: u32, which: u32) -> Verdict {
        let features = &self.features;
        let Some(supported) = features.supported.get(&fid) else {
            return Verdict::of(vec![INVALID_FIELD]);
        };
        let mut errors = Vec::new();
        // Without a namespace it is the value that all of them share.
        let of_all = fid == ERROR_RECOVERY && nsid == 0;
        if fid == ERROR_RECOVERY && !of_all && !self.namespaces.contains_key(&nsid) {
            errors.extend([INVALID_NAMESPACE, INVALID_FIELD]);
        }
        if fid == THRESHOLD && which >> 20 & 3 > 1 || fid == VECTOR && which > u32::from(QUEUES) {
            errors.push(INVALID_FIELD);
        }
        let values = match sel {
            0 => &features.current,
            1 => &features.defaults,
            2 => &features.saved,
            3 => {
                return Verdict {
                    dw0: Some(*supported),
                    ..Verdict::success()
                };
            }
            _ => {
                errors.push(INVALID_FIELD);
                &features.current
            }
        };
        let mut nsid = nsid;
        if of_all {
            let value = |nsid: &u32| values.get(&key(fid, which, *nsid));
            let all = self.namespaces.keys();
            let first = all.clone().next();
            if all.clone().any(|nsid| value(nsid) != first.and_then(value)) {
                errors.push(INVALID_NAMESPACE);
            }
            nsid = first.copied().unwrap_or(nsid);
        }
        Verdict {
            dw0: values.get(&key(fid, which, nsid)).copied(),
            ..Verdict::of(errors)
        }
    }

    /// Set Features.
    pub(super) fn set_feature(&mut self, fid: u8, save: bool, nsid: u32, dword: u32) -> Verdict {
        let Some(supported) = self.features.supported.get(&fid) else {
            return Verdict::of(vec![INVALID_FIELD]);
        };
        let mut errors = self.scope_errors(fid, nsid);
        if save && supported & 1 == 0 {
            errors.push(NOT_SAVEABLE);
        }
        if fid == NUMBER_OF_QUEUES && !(self.cqs.is_empty() && self.sqs.is_empty()) {
            errors.push(SEQUENCE);
        }
        let value = value(fid, dword);
        errors.extend(value.err());
        let (Ok(value), true) = (value, errors.is_empty()) else {
            return Verdict::of(errors);
        };
        let named: Vec<u32> = match (fid, nsid) {
            (ERROR_RECOVERY, u32::MAX) => self.namespaces.keys().copied().collect(),
            _ => vec![nsid],
        };
        for nsid in named {
            let key = key(fid, dword, nsid);
            self.features.current.insert(key, value);
            if save {
                self.features.saved.insert(key, value);
            }
        }
        Verdict {
            dw0: (fid == NUMBER_OF_QUEUES).then_some(value),
            ..Verdict::success()
        }
    }

    /// Whose the feature is, and whom NSID names (Base 2.1, 4.4 and 5.1.25).
    fn scope_errors(&self, fid: u8, nsid: u32) -> Vec<u16> {
        match (fid, nsid) {
            (_, u32::MAX) => vec![],
            (ERROR_RECOVERY, 0) => vec![INVALID_NAMESPACE, INVALID_FIELD],
            (ERROR_RECOVERY, nsid) => self.namespace_errors(nsid),
            (_, 0) => vec![],
            (_, nsid) if is_valid(nsid) => vec![NOT_NAMESPACE_SPECIFIC],
            _ => vec![INVALID_NAMESPACE, NOT_NAMESPACE_SPECIFIC],
        }
    }
}
