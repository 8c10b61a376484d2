//! The first PDU of each side: ICReq and ICResp (TCP 1.1, 3.6.2.1 and 3.6.2.2).

use nvme_spec::tcp::{
    CommonHeader, Digests, IcReq, IcResp, MAX_HEADER_SIZE, MAX_PDA_Z, MIN_MAXH2CDATA, PduFlags,
    PduType,
};

use crate::fault::Fault;

/// Parameters that a side offers or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Digests that a host asks for, or that a controller is willing to use.
    pub digests: Digests,
    /// Alignment of data to this side, in units of 4 bytes, 0's based: HPDA or CPDA; at most 31.
    pub alignment_z: u8,
    /// Bytes of an H2CData at most: a controller's MAXH2CDATA. Without effect for a host.
    pub max_h2c_data: u32,
    /// R2Ts in flight for each command, 0's based: a host's MAXR2T. Without effect for a
    /// controller.
    pub max_r2t_z: u32,
}

/// Parameters that both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Digests that are on.
    pub digests: Digests,
    /// Alignment of data to the host, in units of 4 bytes, 0's based (HPDA).
    pub host_alignment_z: u8,
    /// Alignment of data to the controller, in units of 4 bytes, 0's based (CPDA).
    pub controller_alignment_z: u8,
    /// Bytes of an H2CData at most (MAXH2CDATA).
    pub max_h2c_data: u32,
    /// R2Ts in flight for each command, 0's based (MAXR2T).
    pub max_r2t_z: u32,
}

/// HLEN and PLEN of an ICReq and an ICResp, in bytes.
const LEN: u8 = 128;

const _: () = assert!(LEN as usize == MAX_HEADER_SIZE);

/// The head of an ICReq or ICResp: they have neither digests nor data.
const fn common(pdu_type: PduType) -> CommonHeader {
    CommonHeader {
        pdu_type,
        flags: PduFlags::new(),
        hlen: LEN,
        pdo: 0,
        plen: LEN as u32,
    }
}

impl Offer {
    /// A host's first PDU.
    pub const fn request(&self) -> IcReq {
        IcReq {
            common: common(PduType::IC_REQ),
            pfv: 0,
            hpda_z: self.alignment_z,
            dgst: self.digests,
            maxr2t_z: self.max_r2t_z,
            reserved: [0; 112],
        }
    }

    /// A controller's answer to a host's first PDU: the digests that both want.
    ///
    /// # Errors
    /// The host's PFV or HPDA is not supported.
    pub fn answer(&self, request: &IcReq) -> Result<(IcResp, Agreement), Fault> {
        if request.pfv != 0 {
            return Err(Fault::FormatVersion(request.pfv));
        }
        let agreement = Agreement {
            digests: Digests::new()
                .with_header(self.digests.header() && request.dgst.header())
                .with_data(self.digests.data() && request.dgst.data()),
            host_alignment_z: alignment(request.hpda_z)?,
            controller_alignment_z: self.alignment_z,
            max_h2c_data: self.max_h2c_data,
            max_r2t_z: request.maxr2t_z,
        };
        let response = IcResp {
            common: common(PduType::IC_RESP),
            pfv: 0,
            cpda_z: self.alignment_z,
            dgst: agreement.digests,
            maxh2cdata: self.max_h2c_data,
            reserved: [0; 112],
        };
        Ok((response, agreement))
    }

    /// The agreement of a host that has sent [`Offer::request`], by the controller's answer.
    ///
    /// # Errors
    /// The answer has a digest that was not asked for, or a parameter out of its range. A digest
    /// that was asked for and is not given is an error, too: the host relies on it.
    pub fn agreed(&self, response: &IcResp) -> Result<Agreement, Fault> {
        if response.pfv != 0 {
            return Err(Fault::FormatVersion(response.pfv));
        }
        let (asked, answered) = (self.digests, response.dgst);
        if (asked.header(), asked.data()) != (answered.header(), answered.data()) {
            return Err(Fault::Digests {
                asked: asked.into(),
                answered: answered.into(),
            });
        }
        let max_h2c_data = response.maxh2cdata;
        if max_h2c_data < MIN_MAXH2CDATA || !max_h2c_data.is_multiple_of(4) {
            return Err(Fault::MaxH2cData(max_h2c_data));
        }
        Ok(Agreement {
            digests: asked,
            host_alignment_z: self.alignment_z,
            controller_alignment_z: alignment(response.cpda_z)?,
            max_h2c_data,
            max_r2t_z: self.max_r2t_z,
        })
    }
}

/// HPDA or CPDA, if it is in its range.
const fn alignment(pda_z: u8) -> Result<u8, Fault> {
    if pda_z > MAX_PDA_Z {
        return Err(Fault::Alignment(pda_z));
    }
    Ok(pda_z)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn offer(header: bool, data: bool) -> Offer {
        Offer {
            digests: Digests::new().with_header(header).with_data(data),
            alignment_z: 0,
            max_h2c_data: 0x2_0000,
            max_r2t_z: 0,
        }
    }

    #[test]
    fn the_first_pdus_are_those_that_linux_sends_and_takes() {
        // Recorded: an ICReq is type 0, HLEN and PLEN 128, and otherwise 0 except DGST.
        let mut expected = [0; 128];
        expected[2] = 128;
        expected[4] = 128;
        expected[11] = 3;
        let request = offer(true, true).request();
        assert_eq!(request.as_bytes(), expected);

        let (response, agreement) = offer(true, true).answer(&request).unwrap();
        let mut expected = [0; 128];
        expected[0] = 1;
        expected[2] = 128;
        expected[4] = 128;
        expected[11] = 3;
        expected[14] = 2;
        assert_eq!(response.as_bytes(), expected);
        assert_eq!(offer(true, true).agreed(&response), Ok(agreement));
    }

    #[test]
    fn a_digest_is_on_where_both_want_it() {
        for (host, controller, on) in [
            ((true, true), (true, true), (true, true)),
            ((true, false), (true, true), (true, false)),
            ((false, true), (true, true), (false, true)),
            ((true, true), (false, true), (false, true)),
            ((false, false), (true, true), (false, false)),
        ] {
            let request = offer(host.0, host.1).request();
            let (response, _) = offer(controller.0, controller.1).answer(&request).unwrap();
            assert_eq!((response.dgst.header(), response.dgst.data()), on);
            let agreed = offer(host.0, host.1).agreed(&response);
            assert_eq!(agreed.is_ok(), on == host, "{host:?} {controller:?}");
        }
    }

    #[test]
    fn parameters_out_of_their_range_are_refused() {
        let mut request = offer(false, false).request();
        request.common.flags = PduFlags::new();
        request.pfv = 1;
        let ours = offer(true, true);
        assert_eq!(ours.answer(&request), Err(Fault::FormatVersion(1)));
        request.pfv = 0;
        request.hpda_z = 31;
        let (_, agreement) = ours.answer(&request).unwrap();
        assert_eq!(agreement.host_alignment_z, 31);
        request.hpda_z = 32;
        assert_eq!(ours.answer(&request), Err(Fault::Alignment(32)));

        let host = offer(false, false);
        let (response, _) = ours.answer(&host.request()).unwrap();
        for (maxh2cdata, good) in [
            (4096, true),
            (4095, false),
            (0, false),
            (4098, false),
            (4100, true),
        ] {
            let response = IcResp {
                maxh2cdata,
                ..response
            };
            assert_eq!(host.agreed(&response).is_ok(), good, "{maxh2cdata}");
        }
        let response = IcResp {
            cpda_z: 32,
            ..response
        };
        assert_eq!(host.agreed(&response), Err(Fault::Alignment(32)));
        let response = IcResp { pfv: 1, ..response };
        assert_eq!(host.agreed(&response), Err(Fault::FormatVersion(1)));
    }
}
