//! The effects of commands and features, and their scope: Commands Supported and Effects, and
//! Feature Identifiers Supported and Effects (Base 2.1, 5.1.12.1.6 and 5.1.12.1.18).
//!
//! Linux relies on it: after a passed-through command that changes capabilities or the inventory of
//! namespaces it rescans them, and users without privileges may only pass through I/O commands
//! whose only effect is on their own blocks.

use std::sync::Arc;

use nvme_spec::features::FeatureId;
use nvme_spec::log::{
    CommandEffects, CommandsSupportedAndEffectsLog, FeatureEffects,
    FeatureIdsSupportedAndEffectsLog, Scope,
};
use nvme_spec::opcode::{AdminOpcode, Csi};
use port::namespace::NamespaceTable;
use port::set::{CommandSet, nvm_effects};
use zerocopy::FromZeros;

use super::features;

const NAMESPACE: Scope = Scope::new().with_nss(true);
const CONTROLLER: Scope = Scope::new().with_ctrls(true);
const SUBSYSTEM: Scope = Scope::new().with_nvmss(true);

/// The page for a command set, of the admin commands `served`, and the `sets` that namespaces with
/// that command set have.
pub(super) fn commands(
    served: impl Iterator<Item = AdminOpcode>,
    csi: Csi,
    sets: &[Arc<dyn CommandSet>],
) -> CommandsSupportedAndEffectsLog {
    let mut log = CommandsSupportedAndEffectsLog::new_zeroed();
    for opcode in served {
        log.acs[usize::from(opcode.0)] = admin(opcode).with_csupp(true);
    }
    for (opcode, entry) in (0..=u8::MAX).zip(&mut log.iocs) {
        let mut effects = sets.iter().filter_map(|set| set.effects(opcode));
        let nvm = || nvm_effects(opcode).filter(|_| csi == Csi::NVM);
        *entry = effects.next().or_else(nvm).unwrap_or_default();
    }
    log
}

fn admin(opcode: AdminOpcode) -> CommandEffects {
    let none = CommandEffects::new();
    match opcode {
        AdminOpcode::NAMESPACE_MANAGEMENT | AdminOpcode::NAMESPACE_ATTACHMENT => {
            none.with_csp(SUBSYSTEM).with_nic(true)
        }
        AdminOpcode::FORMAT_NVM => none.with_csp(NAMESPACE).with_lbcc(true).with_ncc(true),
        AdminOpcode::SANITIZE => none.with_csp(SUBSYSTEM).with_lbcc(true),
        AdminOpcode::FIRMWARE_COMMIT | AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD => {
            none.with_csp(SUBSYSTEM)
        }
        AdminOpcode::GET_LBA_STATUS => none.with_csp(NAMESPACE),
        _ => none.with_csp(CONTROLLER),
    }
}

/// The page of features. None changes user data or the data of Identify.
pub(super) fn features(
    namespaces: &NamespaceTable,
    over_fabrics: bool,
) -> FeatureIdsSupportedAndEffectsLog {
    let mut log = FeatureIdsSupportedAndEffectsLog::new_zeroed();
    for (fid, entry) in (0..=u8::MAX).zip(&mut log.fids) {
        if let Some(traits) = features::traits(FeatureId(fid), namespaces, over_fabrics) {
            let scope = if traits.namespace_specific {
                NAMESPACE
            } else {
                CONTROLLER
            };
            *entry = FeatureEffects::new().with_fsupp(true).with_fsp(scope);
        }
    }
    log
}
