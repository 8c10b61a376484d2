//! The replies to a host whose server cannot be replaced.
//!
//! A host that loses its server loses its drive, and QEMU with it often the whole machine. So what
//! it sets up is granted, without effect, and its reads fail, except of the controller's status: it
//! says that the controller has failed, and the host's driver gives the drive up in order.

use rustix::io::Errno;
use vfio_user::Command;
use vfio_user::message::{Access, DmaUnmap, region_index};

/// Offset of the controller status in BAR 0 (CSTS, NVM Express Base Specification 2.0, 3.1.3.6).
const CSTS: u64 = 0x1c;
/// Controller Fatal Status.
const FATAL: u32 = 1 << 1;

/// The body of the reply to a request.
pub(super) fn answer(command: Command, body: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut reply = Vec::new();
    match command {
        Command::DMA_MAP | Command::DEVICE_SET_IRQS | Command::DEVICE_RESET => {}
        Command::DMA_UNMAP => DmaUnmap::parse(body)
            .map_err(|_| Errno::INVAL)?
            .encode(&mut reply),
        Command::REGION_WRITE => {
            let (access, _) = Access::parse_with_data(body).map_err(|_| Errno::INVAL)?;
            access.encode(&mut reply);
        }
        Command::REGION_READ => {
            let access = Access::parse(body).map_err(|_| Errno::INVAL)?;
            let is_status = (access.region, access.offset) == (region_index::BAR0, CSTS);
            if !is_status || access.count != 4 {
                return Err(Errno::IO);
            }
            access.encode(&mut reply);
            reply.extend(FATAL.to_le_bytes());
        }
        _ => return Err(Errno::IO),
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(region: u32, offset: u64, count: u32) -> Result<Vec<u8>, Errno> {
        let mut body = Vec::new();
        let access = Access {
            offset,
            region,
            count,
        };
        access.encode(&mut body);
        answer(Command::REGION_READ, &body)
    }

    #[test]
    fn the_status_is_fatal_and_nothing_else_can_be_read() {
        let status = read(0, 0x1c, 4).unwrap();
        assert_eq!(
            status[..16],
            [0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]
        );
        assert_eq!(status[16..], [2, 0, 0, 0]);
        assert_eq!(read(0, 0x14, 4), Err(Errno::IO));
        assert_eq!(read(7, 0x1c, 4), Err(Errno::IO));
        assert_eq!(read(0, 0x1c, 8), Err(Errno::IO));
    }

    #[test]
    fn what_a_host_sets_up_is_granted() {
        assert_eq!(answer(Command::DMA_MAP, &[0; 32]), Ok(vec![]));
        assert_eq!(answer(Command::DEVICE_SET_IRQS, &[0; 20]), Ok(vec![]));
        assert_eq!(answer(Command::DEVICE_RESET, &[]), Ok(vec![]));
        assert_eq!(answer(Command::DMA_UNMAP, &[7; 24]), Ok(vec![7; 24]));
        let write = [
            &[0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0][..],
            &[1, 0, 0, 0],
        ];
        assert_eq!(
            answer(Command::REGION_WRITE, &write.concat()),
            Ok(write[0].to_vec())
        );
        assert_eq!(answer(Command::VERSION, &[0; 4]), Err(Errno::IO));
    }
}
