//! One model of any kind.

mod recorded;

pub use self::recorded::{Arrival, Recorded, Recording};
use crate::activity::Activity;
use crate::code::Simple;
use crate::error::ParameterError;
use crate::flash::{Flash, StateError};
use crate::kv::Kv;
use crate::nvm::Nvm;
use crate::parameter::Kind;
use crate::parameters::{Arithmetic, Parameters};
use crate::zones::Zones;
use crate::{Admission, Due, Op, Timing};

/// A model, of the kind that its parameters are of.
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
    /// Any of them, with a record of what it is told.
    Recorded(Box<Recorded>),
}

impl Model {
    /// A fresh drive at rest.
    ///
    /// # Errors
    ///
    /// Parameters that make no drive; the message says what would do.
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

    /// The same model with a record of what it is told from now on: so many operations at most.
    #[must_use]
    pub fn recorded(self, most: usize) -> Self {
        Self::Recorded(Box::new(Recorded::new(self, most)))
    }

    /// Takes the record, which ends it. `None` where there is none.
    pub fn take_recording(&mut self) -> Option<Recording> {
        match self {
            Self::Recorded(recorded) => recorded.take(),
            _ => None,
        }
    }

    /// The drive in the state that [`Flash::save`] wrote, at rest.
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

    /// Ends all that is under way. What the drive has become stays, as it would over a restart; its
    /// time begins again.
    ///
    /// # Errors
    ///
    /// Parameters of another drive than this one.
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

    /// The model, where it is one of conventional flash: only those have a state of their own,
    /// beside what the medium knows.
    pub fn flash(&self) -> Option<&Flash> {
        match self {
            Self::Flash(flash) => Some(flash),
            Self::Recorded(recorded) => recorded.model().flash(),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn flash_mut(&mut self) -> Option<&mut Flash> {
        match self {
            Self::Flash(flash) => Some(flash),
            Self::Recorded(recorded) => recorded.model_mut().flash_mut(),
            _ => None,
        }
    }

    /// The model, where it is one of zones.
    pub fn zones_mut(&mut self) -> Option<&mut Zones> {
        match self {
            Self::Zones(zones) => Some(zones),
            Self::Recorded(recorded) => recorded.model_mut().zones_mut(),
            _ => None,
        }
    }

    /// What kind of drive it is.
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

    /// What its servers have done.
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

    /// Bytes of its write buffer, and those of them that are taken, at the time of the last call;
    /// `None` where it has none.
    pub fn buffer(&self) -> Option<(u64, u64)> {
        match self {
            Self::Flash(model) => Some(model.buffer()),
            Self::Zones(model) => Some(model.buffer()),
            Self::Recorded(recorded) => recorded.model().buffer(),
            Self::Nvm(_) | Self::Kv(_) | Self::Code(_) => None,
        }
    }

    /// Other parameters from now on. What is under way keeps its time.
    ///
    /// # Errors
    ///
    /// Those of [`Model::new`], another kind of drive, another shape; then nothing has changed.
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
