//! Properties that a drive reports at the start, which the model takes over.

use std::collections::BTreeMap;

use super::admin::identify;
use super::{PLAIN, bare, nothing};
use crate::host::{Failure, Host};
use crate::model::{Facts, FeatureFacts, INVALID_FIELD, Verdict, features_key};
use crate::program::Fault;
use crate::wire::{Command, Completion, number};
use crate::{NAMESPACE_LIMIT, NAMESPACES, QUEUES, TRANSFER_MAX};

/// Features that the model knows.
const FEATURES: [u8; 10] = [0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b];

/// Properties that the drive reports, checked where the test has configured them.
pub(super) fn learn(host: &mut Host) -> Result<Facts, Failure> {
    let controller = ask(host, identify(bare(0x06, 0), 0x01, 0), 4096)?;
    let first = ask(host, identify(bare(0x06, NAMESPACES[0].0), 0x00, 0), 4096)?;
    let known = |what: &str, found: u64, wanted: u64| {
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{what} is {found:#x}, and must be {wanted:#x}"))
        }
    };
    known("MDTS", 4096 << controller[77], TRANSFER_MAX.into())?;
    known("NN", number(&controller, 516, 4), NAMESPACE_LIMIT.into())?;
    known("deallocated blocks (DLFEAT)", u64::from(first[33] & 7), 1)?;
    let lpa = controller[261];
    known("offsets of log pages (LPA)", u64::from(lpa >> 2 & 1), 1)?;
    // Compare, Write Uncorrectable, Dataset Management, Write Zeroes, Save, Verify, Copy.
    let oncs = number(&controller, 520, 2);
    known("ONCS", oncs & 0b1_1001_1111, 0b1_1001_1111)?;
    known("Format NVM (OACS)", number(&controller, 256, 2) >> 1 & 1, 1)?;
    known("FNA", u64::from(controller[524]), 0)?;
    let formats = (0..=usize::from(first[25])).map(|n| first[128 + 4 * n + 2]);
    let mut facts = Facts {
        formats: formats.collect(),
        copy_limits: (
            number(&first, 80, 1) as u32 + 1,
            number(&first, 74, 2) as u32,
            number(&first, 76, 4) as u32,
        ),
        controller,
        features: FeatureFacts::default(),
        logs: BTreeMap::new(),
    };
    for lid in [0x00, 0x03, 0x05] {
        let len = [1024, 0, 0, 512, 0, 4096][usize::from(lid)];
        let mut log = bare(0x02, u32::MAX);
        log.cdw[0] = (len as u32 / 4 - 1) << 16 | u32::from(lid);
        facts.logs.insert(lid, ask(host, log, len)?);
    }
    for fid in FEATURES {
        learn_feature(host, fid, &mut facts.features)?;
    }
    Ok(facts)
}

fn learn_feature(host: &mut Host, fid: u8, facts: &mut FeatureFacts) -> Result<(), Failure> {
    let get = |sel: u32, which, nsid| {
        let mut get = bare(0x0a, nsid);
        (get.cdw[0], get.cdw[1]) = (sel << 8 | u32::from(fid), which);
        get
    };
    let capabilities = send(host, get(3, 0, u32::from(fid == 0x05)))?;
    match capabilities.status {
        0 => facts.supported.insert(fid, capabilities.dw0),
        INVALID_FIELD => return Ok(()),
        _ => {
            return Err(format!(
                "capabilities of feature {fid:#x}: {capabilities:?}"
            ));
        }
    };
    let values: Vec<(u32, u32)> = match fid {
        0x04 => vec![(0, 0), (1 << 20, 0)],
        0x05 => NAMESPACES.map(|(nsid, ..)| (0, nsid)).to_vec(),
        0x09 => (0..=QUEUES).map(|iv| (iv.into(), 0)).collect(),
        _ => vec![(0, 0)],
    };
    for (which, nsid) in values {
        let default = send(host, get(1, which, nsid))?;
        Verdict::success().judge(default.status, 0)?;
        let key = features_key(fid, which, nsid);
        facts.defaults.insert(key, default.dw0);
    }
    Ok(())
}

fn send(host: &mut Host, command: Command) -> Result<Completion, Failure> {
    let cid = host.put(0, command);
    host.ring(0);
    let (completion, others) = host.wait_admin(cid)?;
    nothing(&others)?;
    Ok(completion)
}

/// Sends a question that must be answered; the answer.
fn ask(host: &mut Host, command: Command, len: usize) -> Result<Vec<u8>, Failure> {
    let (flags, dptr) = host.describe(&PLAIN, len, Fault::None);
    let command = Command {
        flags,
        dptr,
        ..command
    };
    let completion = send(host, command)?;
    Verdict::success().judge(completion.status, 0)?;
    Ok(host.take_data(&PLAIN, len))
}
