//! The data of Reservation Report (Base 2.1, 7.8).

use nvme_spec::reservation::{
    CNTLID_NOT_ASSOCIATED, EXTENDED_HEADER_SIZE, RegisteredController,
    RegisteredControllerExtended, RegistrantStatus, ReservationStatusHeader, ReservationType,
};
use zerocopy::{FromZeros, IntoBytes};

use super::{Host, Reservation};
use crate::ControllerId;

/// A controller that has the namespace attached, and its host.
pub(crate) type Registered = (ControllerId, Host);

/// The whole structure: one entry for each controller of a registered host, and one for a
/// registered host that has no controller now. `extended`: with identifiers of 128 bits.
pub(crate) fn report(
    reservation: &Reservation,
    controllers: &[Registered],
    extended: bool,
) -> Vec<u8> {
    let mut entries: Vec<(u16, Host, u64)> = Vec::new();
    for registrant in &reservation.registrants {
        let host = registrant.host;
        let of_host = controllers.iter().filter(|(_, other)| *other == host);
        let before = entries.len();
        entries.extend(of_host.map(|(id, _)| (id.0, host, registrant.key)));
        if entries.len() == before {
            entries.push((CNTLID_NOT_ASSOCIATED, host, registrant.key));
        }
    }
    let mut header = ReservationStatusHeader::new_zeroed();
    header.generation = reservation.generation;
    header.rtype = ReservationType(reservation.held.map_or(0, |held| held.rtype));
    header.regstrnt = u16::try_from(entries.len()).unwrap_or(u16::MAX).into();
    header.ptpls = reservation.ptpl.into();
    let mut bytes = header.as_bytes().to_vec();
    if extended {
        bytes.resize(EXTENDED_HEADER_SIZE, 0);
    }
    for (cntlid, host, rkey) in entries {
        let rcsts = RegistrantStatus::new().with_ahhr(reservation.is_holder(host));
        let mut hostid = [0; 16];
        match host {
            Host::Short(id) => hostid[..8].copy_from_slice(&id),
            Host::Extended(id) => hostid = id,
            Host::Anonymous(_) => {}
        }
        if extended {
            let mut entry = RegisteredControllerExtended::new_zeroed();
            (entry.cntlid, entry.rcsts, entry.rkey) = (cntlid, rcsts, rkey);
            entry.hostid = hostid;
            bytes.extend_from_slice(entry.as_bytes());
        } else {
            let mut entry = RegisteredController::new_zeroed();
            (entry.cntlid, entry.rcsts, entry.rkey) = (cntlid, rcsts, rkey);
            entry.hostid.copy_from_slice(&hostid[..8]);
            bytes.extend_from_slice(entry.as_bytes());
        }
    }
    bytes
}
