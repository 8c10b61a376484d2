//! A host that a former process of this server had: its session goes on.
//!
//! A holder sends first what the former process knew of the host: the state of its controller, its
//! doorbells, its memory and its eventfds (`vfio_user::relayed`). Requests that have no reply yet
//! follow, and are the new session's.
//!
//! Every wait for the holder has a bound.

use std::sync::Arc;

use controller::controller::Left;
use memory::{DoorbellPages, StateFile};
use vfio_user::Connection;
use vfio_user::relayed::{Arrival, RESUME, Resume};

use super::hearing::{ResumeError, hear};
use super::{Session, SessionConfig};

/// A session that goes on, and what its controller needs.
#[derive(Debug)]
pub struct Resumed {
    /// The session.
    pub session: Session,
    /// State of the controller that the former process left.
    pub left: Left,
}

impl Resumed {
    /// Reads what the holder says of the host. `slots`: the doorbells that the controller has.
    ///
    /// # Errors
    /// [`ResumeError`]; the connection is closed then.
    pub fn read(
        arrival: Arrival,
        slots: usize,
        config: SessionConfig,
    ) -> Result<Self, ResumeError> {
        let mut connection = Connection::relayed(arrival.stream)?;
        let (command, resume, mut fds) = hear(&mut connection, |first| {
            let resume = Resume::parse(first.body).ok();
            (first.header.command, resume, first.fds.into_iter())
        })?;
        let (Some(resume), Some(state), Some(doorbells)) = (resume, fds.next(), fds.next()) else {
            return Err(ResumeError::Unexpected(command));
        };
        if command != RESUME {
            return Err(ResumeError::Unexpected(command));
        }
        let state = StateFile::open(state)?;
        let doorbells = Arc::new(DoorbellPages::adopt(doorbells, slots)?);
        let mut session = Session::new(connection, arrival.process, doorbells.clone(), config)?;
        session.doorbells_were_sent(resume.doorbells_sent != 0);
        while session.hear_again()? {}
        let (view, _) = session.view();
        Ok(Self {
            session,
            left: Left {
                file: state,
                doorbells,
                view,
                crashed: resume.crashed != 0,
            },
        })
    }
}
