//! A model of any kind.

mod recorded;

pub use self::recorded::{Arrival, Recorded, Recording};
use crate::activity::Activity;
use crate::code::Simple;
use crate::error::ParameterError;
use crate::flash::{Flash, Initial, StateError};
use crate::kv::Kv;
use crate::nvm::Nvm;
use crate::parameter::Kind;
use crate::parameters::{Arithmetic, Parameters};
use crate::zones::Zones;
use crate::{Admission, Due, Op, Timing};

/// A model, of the kind of its parameters.
#[derive(Debug)]
pub enum Model {
    /// Low-latency non-volatile memory.
    Nvm(Nvm),
    /// Key-value.
    Kv(Kv),
    /// Conventional flash.
    Flash(Flash),
    /// Zoned flash.
    Zones(Zones),
    /// Low-latency non-volatile memory or key-value, with `arithmetic = "code"`.
    Code(Simple),
    /// Any of them, with a recording of its operations.
    Recorded(Box<Recorded>),
}

impl Model {
    /// Creates a fresh drive at rest.
    ///
    /// # Errors
    ///
    /// Invalid parameters; the message names the remedy.
    pub fn new(parameters: &Parameters) -> Result<Self, ParameterError> {
        if let Some(model) = Simple::new(parameters)? {
            return Ok(Self::Code(model));
        }
        Ok(match parameters {
            Parameters::Nvm(parameters) => Self::Nvm(Nvm::new(parameters)?),
            Parameters::Kv(parameters) => Self::Kv(Kv::new(parameters)?),
            Parameters::Flash(parameters) => Self::Flash(Flash::new(parameters)?),
            Parameters::Zones(parameters) => Self::Zones(Zones::new(parameters)?),
        })
    }

    /// Creates a drive at rest; `initial` is the state of conventional flash, and has no effect on
    /// other kinds. `seed` is that of the steady state's random writes.
    ///
    /// # Errors
    ///
    /// Those of [`Model::new`].
    pub fn in_state(
        parameters: &Parameters,
        initial: Initial,
        seed: u64,
    ) -> Result<Self, ParameterError> {
        match parameters {
            Parameters::Flash(flash) => Ok(Self::Flash(Flash::in_state(flash, initial, seed)?)),
            _ => Self::new(parameters),
        }
    }

    /// Records the model's operations from now on, up to `most` of them.
    #[must_use]
    pub fn recorded(self, most: usize) -> Self {
        Self::Recorded(Box::new(Recorded::new(self, most)))
    }

    /// Ends the recording and returns it. `None` if there is none.
    pub fn take_recording(&mut self) -> Option<Recording> {
        match self {
            Self::Recorded(recorded) => recorded.take(),
            _ => None,
        }
    }

    /// Creates a drive at rest in the state written by [`Flash::save`].
    ///
    /// # Errors
    ///
    /// Those of [`Flash::restore`]; a model of another kind.
    pub fn restore(parameters: &Parameters, bytes: &[u8]) -> Result<Self, StateError> {
        match parameters {
            Parameters::Flash(parameters) => Ok(Self::Flash(Flash::restore(parameters, bytes)?)),
            _ => Err(StateError::Stateless),
        }
    }

    /// Ends everything in flight. The drive's state stays, as over a restart; its time restarts.
    ///
    /// # Errors
    ///
    /// Parameters of another drive.
    pub fn rest(&mut self, parameters: &Parameters) -> Result<(), ParameterError> {
        match (self, parameters) {
            (Self::Recorded(recorded), parameters) => {
                recorded.end();
                recorded.model_mut().rest(parameters)?;
            }
            (Self::Flash(model), Parameters::Flash(parameters)) => model.rest(parameters),
            (Self::Zones(model), Parameters::Zones(parameters)) => model.rest(parameters),
            (model, parameters) => *model = Self::new(parameters)?,
        }
        Ok(())
    }

    /// Has commands complete this long before their time, in nanoseconds, until the model is at
    /// rest: for hosts that see a completion later by so much. All other times stay, those of
    /// later commands included. Commands whose times may still become later (those that wait for
    /// dies that suspend their work) complete at their time.
    pub fn release_early(&mut self, ns: u64) {
        match self {
            Self::Nvm(model) => model.release_early(ns),
            Self::Kv(model) => model.release_early(ns),
            Self::Flash(model) => model.release_early(ns),
            Self::Zones(model) => model.release_early(ns),
            Self::Code(model) => model.release_early(ns),
            Self::Recorded(recorded) => recorded.model_mut().release_early(ns),
        }
    }

    /// The model of conventional flash, if it is one: only that has state other than the medium's.
    pub fn flash(&self) -> Option<&Flash> {
        match self {
            Self::Flash(flash) => Some(flash),
            Self::Recorded(recorded) => recorded.model().flash(),
            _ => None,
        }
    }

    /// The same, mutable.
    pub fn flash_mut(&mut self) -> Option<&mut Flash> {
        match self {
            Self::Flash(flash) => Some(flash),
            Self::Recorded(recorded) => recorded.model_mut().flash_mut(),
            _ => None,
        }
    }

    /// The model of zones, if it is one.
    pub fn zones_mut(&mut self) -> Option<&mut Zones> {
        match self {
            Self::Zones(zones) => Some(zones),
            Self::Recorded(recorded) => recorded.model_mut().zones_mut(),
            _ => None,
        }
    }

    /// Kind of the drive.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Nvm(_) => Kind::Nvm,
            Self::Kv(_) => Kind::Kv,
            Self::Flash(_) => Kind::Flash,
            Self::Zones(_) => Kind::Zns,
            Self::Code(simple) => simple.kind(),
            Self::Recorded(recorded) => recorded.model().kind(),
        }
    }

    /// Activity of its servers.
    pub fn activity(&self) -> Activity {
        match self {
            Self::Nvm(model) => model.activity(),
            Self::Kv(model) => model.activity(),
            Self::Flash(model) => model.activity(),
            Self::Zones(model) => model.activity(),
            Self::Code(model) => model.activity(),
            Self::Recorded(recorded) => recorded.model().activity(),
        }
    }

    /// Size of its write buffer in bytes, and the taken part, at the time of the last call; `None`
    /// if it has none.
    pub fn buffer(&self) -> Option<(u64, u64)> {
        match self {
            Self::Flash(model) => Some(model.buffer()),
            Self::Zones(model) => Some(model.buffer()),
            Self::Recorded(recorded) => recorded.model().buffer(),
            Self::Nvm(_) | Self::Kv(_) | Self::Code(_) => None,
        }
    }

    /// Changes the parameters. Commands in flight keep their times.
    ///
    /// # Errors
    ///
    /// Those of [`Model::new`]; another kind of drive, or another shape. Then nothing has changed.
    pub fn retune(&mut self, parameters: &Parameters) -> Result<(), ParameterError> {
        match (self, parameters) {
            (Self::Code(model), parameters) => model.retune(parameters),
            (Self::Recorded(recorded), parameters) => {
                recorded.model_mut().retune(parameters)?;
                recorded.end();
                Ok(())
            }
            (Self::Nvm(_) | Self::Kv(_), parameters)
                if parameters.arithmetic() == Arithmetic::Code =>
            {
                Err(ParameterError::Fixed { name: "arithmetic" })
            }
            (Self::Nvm(model), Parameters::Nvm(parameters)) => model.retune(parameters),
            (Self::Kv(model), Parameters::Kv(parameters)) => model.retune(parameters),
            (Self::Flash(model), Parameters::Flash(parameters)) => model.retune(parameters),
            (Self::Zones(model), Parameters::Zones(parameters)) => model.retune(parameters),
            _ => Err(ParameterError::Fixed { name: "kind" }),
        }
    }
}

macro_rules! each {
    ($model:expr, $name:ident => $call:expr) => {
        match $model {
            Model::Nvm($name) => $call,
            Model::Kv($name) => $call,
            Model::Flash($name) => $call,
            Model::Zones($name) => $call,
            Model::Code($name) => $call,
            Model::Recorded($name) => $call,
        }
    };
}

impl Timing for Model {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        each!(self, model => model.submit(now, id, op))
    }

    fn has_room(&self, op: &Op<'_>) -> bool {
        each!(self, model => model.has_room(op))
    }

    fn next_event(&self) -> Option<u64> {
        each!(self, model => model.next_event())
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        each!(self, model => model.advance(now, done));
    }
}
