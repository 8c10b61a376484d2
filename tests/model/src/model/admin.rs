//! Admin commands (Base 2.1, 5).

use super::{
    CQ_INVALID, EVENT_LIMIT, INVALID_DELETION, INVALID_FIELD, INVALID_FORMAT, INVALID_LOG,
    INVALID_NAMESPACE, INVALID_OPCODE, INVALID_QUEUE, INVALID_SIZE, INVALID_VECTOR, Model,
    PRP_OFFSET, Verdict, is_valid,
};
use crate::model::Namespace;
use crate::program::Admin;

/// Identify.
const IDENTIFY: u8 = 0x06;

impl Model {
    /// The required outcome of an admin command, which is done with the model, too. Abort and
    /// Asynchronous Event Request are the machine's: their outcome depends on identifiers.
    pub fn admin(&mut self, admin: &Admin) -> Verdict {
        match *admin {
            Admin::CreateCq {
                qid,
                size_z,
                contiguous,
                vector,
                misaligned,
            } => {
                let (_, most) = self.features.queues();
                let exists = self.cqs.contains_key(&qid);
                let mut errors =
                    self.queue_errors(qid, most, exists, size_z, contiguous, misaligned);
                if vector >= self.vectors() {
                    errors.push(INVALID_VECTOR);
                }
                if errors.is_empty() {
                    self.cqs.insert(qid, u32::from(size_z) + 1);
                }
                Verdict::of(errors)
            }
            Admin::CreateSq {
                qid,
                size_z,
                contiguous,
                cqid,
                misaligned,
            } => {
                let (most, most_cqs) = self.features.queues();
                let exists = self.sqs.contains_key(&qid);
                let mut errors =
                    self.queue_errors(qid, most, exists, size_z, contiguous, misaligned);
                if cqid == 0 || cqid > most_cqs {
                    errors.push(INVALID_QUEUE);
                } else if !self.cqs.contains_key(&cqid) {
                    errors.push(CQ_INVALID);
                }
                if errors.is_empty() {
                    self.sqs.insert(qid, (u32::from(size_z) + 1, cqid));
                }
                Verdict::of(errors)
            }
            Admin::DeleteCq(qid) => {
                let used = self.sqs.values().any(|(_, cqid)| *cqid == qid);
                Verdict::of(match self.cqs.contains_key(&qid) {
                    false => vec![INVALID_QUEUE],
                    true if used => vec![INVALID_DELETION],
                    true => {
                        self.cqs.remove(&qid);
                        vec![]
                    }
                })
            }
            Admin::DeleteSq(qid) => Verdict::of(match self.sqs.remove(&qid) {
                Some(_) => vec![],
                None => vec![INVALID_QUEUE],
            }),
            Admin::Identify { cns, nsid, csi } => self.identify(cns, nsid, csi),
            Admin::GetLog {
                lid,
                dwords_z,
                offset,
            } => self.get_log(lid, 4 * (usize::from(dwords_z) + 1), offset),
            Admin::GetFeature {
                fid,
                sel,
                nsid,
                which,
            } => self.get_feature(fid, sel, nsid, which),
            Admin::SetFeature {
                fid,
                save,
                nsid,
                value,
            } => self.set_feature(fid, save, nsid, value),
            Admin::EventRequest => {
                // AERL, 0's based.
                let most = usize::from(self.facts.controller[259]) + 1;
                Verdict::of(if self.held.len() < most {
                    vec![]
                } else {
                    vec![EVENT_LIMIT]
                })
            }
            Admin::Abort { .. } | Admin::KeepAlive => Verdict::success(),
            Admin::Format {
                nsid,
                format,
                erase,
                protection,
            } => self.format(nsid, format, erase, protection),
            Admin::Odd { opcode, flags } => Verdict::of(match (opcode, flags) {
                (IDENTIFY, 0) => vec![],
                (IDENTIFY, _) => vec![INVALID_FIELD],
                _ => vec![INVALID_OPCODE],
            }),
        }
    }

    /// Checks of both Create commands (5.2.1 and 5.2.2).
    fn queue_errors(
        &self,
        qid: u16,
        most: u16,
        exists: bool,
        size_z: u16,
        contiguous: bool,
        misaligned: bool,
    ) -> Vec<u16> {
        let wrong = [
            (qid == 0 || qid > most || exists, INVALID_QUEUE),
            (size_z == 0 || size_z > self.size_max_z(), INVALID_SIZE),
            // CAP.CQR is 1.
            (!contiguous, INVALID_FIELD),
            (misaligned, PRP_OFFSET),
        ];
        let errors = wrong.into_iter().filter(|(wrong, _)| *wrong);
        errors.map(|(_, error)| error).collect()
    }

    /// Identify (5.1.13).
    fn identify(&self, cns: u8, nsid: u32, csi: u8) -> Verdict {
        let with = |data: Vec<(usize, Vec<u8>)>| Verdict {
            data,
            ..Verdict::success()
        };
        let zeros = || with(vec![(0, vec![0; 4096])]);
        let namespace = self.namespaces.get(&nsid);
        let mut errors = Vec::new();
        if [0x05, 0x06, 0x07].contains(&cns) && csi != 0 {
            errors.push(INVALID_FIELD);
        }
        let verdict = match cns {
            0x01 => with(vec![(0, self.facts.controller.clone())]),
            0x06 | 0x1c => Verdict::success(),
            // A list of identifiers above NSID.
            0x02 | 0x07 | 0x10 => {
                if nsid >= 0xffff_fffe {
                    errors.push(INVALID_NAMESPACE);
                }
                let above = self.namespaces.keys().filter(|id| **id > nsid);
                let mut list: Vec<u8> = above.flat_map(|id| id.to_le_bytes()).collect();
                list.resize(4096, 0);
                with(vec![(0, list)])
            }
            0x00 | 0x03 | 0x05 | 0x08 if !is_valid(nsid) => {
                errors.push(INVALID_NAMESPACE);
                Verdict::success()
            }
            0x00 => namespace.map_or_else(zeros, |namespace| with(self.described(namespace))),
            0x03 => match namespace {
                // Each of the three has an EUI-64, type 1, an NGUID, type 2, and a command set.
                Some(_) => Verdict::success(),
                None => Verdict::of(vec![INVALID_NAMESPACE, INVALID_FIELD]),
            },
            // NSTAT: ready.
            0x08 => namespace.map_or_else(zeros, |_| with(vec![(14, vec![1])])),
            0x05 => Verdict::success(),
            _ => {
                errors.push(INVALID_FIELD);
                Verdict::success()
            }
        };
        errors.extend(&verdict.errors);
        Verdict { errors, ..verdict }
    }

    /// NSZE, NCAP and NUSE are all of it; FLBAS names the format with its size of a block (NVM 1.1,
    /// 4.1.5.1).
    fn described(&self, namespace: &Namespace) -> Vec<(usize, Vec<u8>)> {
        let size = namespace.blocks().to_le_bytes().to_vec();
        let formats = &self.facts.formats;
        let format = formats.iter().position(|shift| *shift == namespace.shift);
        let format = format.unwrap_or(usize::MAX);
        vec![
            (0, size.clone()),
            (8, size),
            (25, vec![formats.len() as u8 - 1, format as u8]),
        ]
    }

    /// Get Log Page (5.1.12): of the controller, with an offset in bytes.
    fn get_log(&self, lid: u8, len: usize, offset: u64) -> Verdict {
        let entries = usize::from(self.facts.controller[262]) + 1;
        let size = match lid {
            0x00 => 1024,
            0x01 => 64 * entries,
            0x02 | 0x03 => 512,
            0x04 | 0x05 => 4096,
            _ => return Verdict::of(vec![INVALID_LOG, INVALID_FIELD]),
        };
        if !offset.is_multiple_of(4) || offset > size as u64 {
            return Verdict::of(vec![INVALID_FIELD]);
        }
        let mut verdict = Verdict::success();
        if let Some(page) = self.facts.logs.get(&lid) {
            let rest = page.get(offset as usize..).unwrap_or(&[]);
            verdict.data = vec![(0, rest[..rest.len().min(len)].to_vec())];
        }
        verdict
    }

    /// Format NVM (5.1.10): of one namespace, or of all.
    fn format(&mut self, nsid: u32, format: u8, erase: u8, protection: u8) -> Verdict {
        // Figure 188: one that is allocated, or all; every other value is an invalid field.
        let is_there = nsid == u32::MAX || self.namespaces.contains_key(&nsid);
        let mut errors = if is_there {
            vec![]
        } else {
            vec![INVALID_FIELD]
        };
        let shift = self.facts.formats.get(usize::from(format)).copied();
        if shift.is_none() {
            errors.push(INVALID_FORMAT);
        }
        if protection != 0 {
            errors.extend([INVALID_FORMAT, INVALID_FIELD]);
        }
        // None, or of user data: FNA offers no cryptographic erase.
        if erase > 1 {
            errors.push(INVALID_FIELD);
        }
        let (Some(shift), true) = (shift, errors.is_empty()) else {
            return Verdict::of(errors);
        };
        for (id, namespace) in &mut self.namespaces {
            if [*id, u32::MAX].contains(&nsid) {
                *namespace = Namespace::new(namespace.bytes.len(), shift);
            }
        }
        Verdict::success()
    }
}
