//! Registers of the controller.

use controller::Controller;
use nvme_spec::registers::{ACQ, AQA, ASQ, Aqa, CC, CSTS, Cc, Csts};

use super::rings::Rings;

/// Controller Configuration and Controller Status.
pub(crate) fn state(controller: &Controller) -> (Cc, Csts) {
    let mut bytes = [0; (CSTS - CC) as usize + 4];
    controller.bar_read(0, CC, &mut bytes);
    let word = |at: u64| {
        let at = (at - CC) as usize;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    (word(CC).into(), word(CSTS).into())
}

/// Empties the rings of the admin queue, and has a controller that is not enabled use them.
pub(crate) fn point(controller: &mut Controller, rings: &mut Rings) {
    rings.reset();
    let entries_z = u16::try_from(rings.entries() - 1).expect("an admin queue is shorter");
    let aqa = Aqa::new().with_asqs_z(entries_z).with_acqs_z(entries_z);
    let (asq, acq) = rings.addresses();
    controller.bar_write(0, AQA, &u32::from(aqa).to_le_bytes());
    controller.bar_write(0, ASQ, &asq.to_le_bytes());
    controller.bar_write(0, ACQ, &acq.to_le_bytes());
}
