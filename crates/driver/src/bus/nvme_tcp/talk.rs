//! A connection before its queue is connected: what is sent, and the answer to it.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use nvme_spec::{Cqe, Sqe};
use nvme_tcp::{Agreement, Decoder, Encoder, Event, Offer};
use rustix::event::PollFlags;

use super::address::TcpAddress;
use super::stream::{Stream, await_socket};
use super::wire::{decoder, digest_of};
use crate::DriverError;

/// Message of a target before a queue is connected.
pub(super) enum Said {
    Agreed(Agreement),
    Completed(Cqe),
}

/// One command and its answer at a time, with one deadline for all.
pub(super) struct Talk<'a> {
    pub(super) target: &'a TcpAddress,
    offer: Offer,
    stream: Stream,
    decoder: Decoder,
    timeout: Duration,
    deadline: Instant,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        (target, offer): (&'a TcpAddress, Offer),
        stream: Stream,
        timeout: Duration,
        deadline: Instant,
    ) -> Self {
        Self {
            target,
            offer,
            stream,
            decoder: decoder(),
            timeout,
            deadline,
        }
    }

    /// Both sides have agreed how PDUs look.
    pub(super) fn agree(&mut self, agreement: Agreement) {
        self.decoder.agree(agreement);
    }

    /// The queue is connected.
    pub(super) fn into_parts(self) -> (Stream, Decoder) {
        (self.stream, self.decoder)
    }

    pub(super) fn refused(&self, reason: String) -> DriverError {
        DriverError::Target {
            address: self.target.to_string(),
            reason,
            kind: None,
        }
    }

    fn lost(&self, error: &std::io::Error) -> DriverError {
        self.refused(format!(
            "the connection broke: {error}; see the target's log"
        ))
    }

    fn wait(&self, flags: PollFlags, what: &'static str) -> Result<(), DriverError> {
        if flags == PollFlags::IN && self.stream.has_pending() {
            return Ok(());
        }
        match await_socket(&self.stream, flags, self.deadline) {
            Ok(true) => Ok(()),
            Ok(false) => Err(DriverError::Timeout {
                what,
                after: self.timeout,
            }),
            Err(error) => Err(self.lost(&error)),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.wait(PollFlags::OUT, "sending to the target")?;
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// The answer to what was sent. No bytes may follow it: a target only answers.
    pub(super) fn receive(&mut self, what: &'static str) -> Result<Said, DriverError> {
        self.receive_data(what, &mut Vec::new(), 0)
    }

    /// As [`Self::receive`], of a command that up to `most` bytes of data go to.
    pub(super) fn receive_data(
        &mut self,
        what: &'static str,
        data: &mut Vec<u8>,
        most: usize,
    ) -> Result<Said, DriverError> {
        let mut input = [0; 256];
        let mut stands = None;
        loop {
            self.wait(PollFlags::IN, what)?;
            let count = match self.stream.read(&mut input) {
                Ok(0) => {
                    return Err(self.refused(format!(
                        "the target closed the connection before {what}; see its log, and check that it speaks NVMe/TCP without TLS"
                    )));
                }
                Ok(count) => count,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(self.lost(&error)),
            };
            let mut bytes = &input[..count];
            loop {
                let step = self.decoder.step(&mut bytes);
                let broken = |error: String| {
                    self.refused(format!("{error}; check that the target speaks NVMe/TCP"))
                };
                let said = match step {
                    Ok(None) => break,
                    Ok(Some(Event::IcResp(response))) => {
                        let agreed = self.offer.agreed(&response);
                        Said::Agreed(agreed.map_err(|fault| broken(fault.to_string()))?)
                    }
                    Ok(Some(Event::Response(cqe))) => Said::Completed(cqe),
                    Ok(Some(Event::Terminated { fes, fei })) => {
                        return Err(DriverError::Terminated {
                            fes: fes.0,
                            name: fes.name(),
                            fei,
                        });
                    }
                    Ok(Some(Event::C2hData(header))) if header.datal as usize <= most => {
                        stands = header.common.flags.success().then_some(header.cccid);
                        continue;
                    }
                    Ok(Some(Event::Data(piece))) if data.len() + piece.len() <= most => {
                        data.extend_from_slice(piece);
                        continue;
                    }
                    Ok(Some(Event::DataEnd { intact: true })) if most > 0 => match stands {
                        // These data stand for the completion.
                        Some(cid) => Said::Completed(Cqe {
                            cid,
                            ..Cqe::default()
                        }),
                        None => continue,
                    },
                    Ok(Some(Event::DataEnd { intact: false })) => {
                        return Err(self.refused(format!(
                            "{what} came with a wrong digest; check the network"
                        )));
                    }
                    Ok(Some(_)) => return Err(broken(format!("it sends data before {what}"))),
                    Err(fault) => return Err(broken(fault.to_string())),
                };
                if bytes.is_empty() {
                    return Ok(said);
                }
                return Err(broken(format!("it sends more than {what}")));
            }
        }
    }
}

/// A command with its data in one capsule.
pub(super) fn capsule_with(encoder: &Encoder, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).expect("messages are short");
    let mut capsule = encoder.capsule(sqe, len).to_vec();
    capsule.extend_from_slice(data);
    if encoder.data_digest() {
        capsule.extend(digest_of(data));
    }
    capsule
}

fn is_transient(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}
