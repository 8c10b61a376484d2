//! Admission of commands to their medium.
//!
//! A lane asks its [`Gate`] for each command, after the command was fetched and before any access
//! to the host's memory. A command that may not go waits in its slot ([`crate::lane`]): it holds no
//! segment, no address and no room of a medium, so it blocks no unmap and no change of namespaces.
//! Behind it in its queue, commands of other flows go on.
//!
//! A gate that decides is the engine's, with tenants; without them lanes use [`Open`], which costs
//! nothing.

use port::namespace::Namespace;
use port::time::Time;

/// Commands that are admitted or deferred together, as a gate numbers them: one tenant's to one
/// namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub u16);

impl FlowId {
    /// Flows that can be numbered, from 0: a slot stores the number plus one.
    pub const LIMIT: usize = u16::MAX as usize;
}

/// A gate's decision about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It goes, and is not counted.
    Free,
    /// It goes, and is reported to [`Gate::issued`].
    Go(FlowId),
    /// It waits until [`Gate::pass_again`] admits it.
    Wait(FlowId),
}

/// The cost of a command to a medium, for a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its opcode, whose two low bits say which way data goes (Base 2.1, figure 92).
    pub opcode: u8,
    /// Bytes that it transfers; 0 for one that transfers none, whatever it does to the medium.
    pub bytes: u32,
}

/// Holds commands back, or lets them go.
pub trait Gate {
    /// False where every command is [`Pass::Free`], so that nothing need be asked.
    const HOLDS: bool;
    /// True for turns with sampled commands, so that all other turns have no code for sampling
    /// ([`crate::flight`]).
    const WATCHES: bool = false;

    /// Whether a command to `namespace` may go now.
    fn pass(&mut self, namespace: &Namespace) -> Pass;

    /// Whether the first waiting command of a flow may go now.
    fn pass_again(&mut self, flow: FlowId) -> bool;

    /// A command waits from now on.
    fn held(&mut self, flow: FlowId);

    /// A command that may go was handed to its medium, which has it still (`pending`) or has done
    /// it. The time by which that is.
    fn issued(&mut self, flow: FlowId, work: Work, pending: bool) -> Time;

    /// A medium has released a `pending` command, which it got at `since`.
    fn ended(&mut self, flow: FlowId, work: Work, since: Time);
}

/// A gate that is always open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    const HOLDS: bool = false;

    #[inline(always)]
    fn pass(&mut self, _: &Namespace) -> Pass {
        Pass::Free
    }

    #[inline(always)]
    fn pass_again(&mut self, _: FlowId) -> bool {
        true
    }

    #[inline(always)]
    fn held(&mut self, _: FlowId) {}

    #[inline(always)]
    fn issued(&mut self, _: FlowId, _: Work, _: bool) -> Time {
        Time(0)
    }

    #[inline(always)]
    fn ended(&mut self, _: FlowId, _: Work, _: Time) {}
}

/// A gate in whose turns commands are watched.
#[derive(Debug)]
pub(crate) struct Watched<G>(pub(crate) G);

impl<G: Gate> Gate for Watched<G> {
    const HOLDS: bool = G::HOLDS;
    const WATCHES: bool = true;

    #[inline(always)]
    fn pass(&mut self, namespace: &Namespace) -> Pass {
        self.0.pass(namespace)
    }

    #[inline(always)]
    fn pass_again(&mut self, flow: FlowId) -> bool {
        self.0.pass_again(flow)
    }

    #[inline(always)]
    fn held(&mut self, flow: FlowId) {
        self.0.held(flow);
    }

    #[inline(always)]
    fn issued(&mut self, flow: FlowId, work: Work, pending: bool) -> Time {
        self.0.issued(flow, work, pending)
    }

    #[inline(always)]
    fn ended(&mut self, flow: FlowId, work: Work, since: Time) {
        self.0.ended(flow, work, since);
    }
}
