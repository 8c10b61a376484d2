//! Steps between what is served and what is wanted.

use api::config::log::Log;
use api::config::tenant::Tenant;
use api::config::{Controller, Host, Medium, Namespace, Size, Timing};
use api::{PlannedStep, StepAction, What};

use super::id::{ControllerId, Identified, MediumId, NamespaceId, ObjectId};
use super::inventory::{Named, Objects};

/// An object of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    /// A medium.
    Media(Box<Medium>),
    /// A namespace.
    Namespace(Box<Namespace>),
    /// A tenant.
    Tenant(Box<Tenant>),
    /// A controller.
    Controller(Box<Controller>),
}

impl Object {
    /// Its identifier.
    pub(crate) fn id(&self) -> ObjectId {
        match self {
            Object::Media(one) => one.id(),
            Object::Namespace(one) => one.id(),
            Object::Tenant(one) => one.id(),
            Object::Controller(one) => one.id(),
        }
    }

    /// Adds it to others, in place of one of the same name.
    pub(crate) fn put_into(&self, all: &mut Objects) {
        fn put<T: Named>(all: &mut Vec<T>, new: &T) {
            match all.iter_mut().find(|one| one.name() == new.name()) {
                Some(one) => one.clone_from(new),
                None => all.push(new.clone()),
            }
        }
        match self {
            Object::Media(one) => put(&mut all.media, one),
            Object::Namespace(one) => put(&mut all.namespace, one),
            Object::Tenant(one) => put(&mut all.tenant, one),
            Object::Controller(one) => put(&mut all.controller, one),
        }
    }
}

macro_rules! objects {
    ($($object:ident: $variant:ident),*) => {$(
        impl From<$object> for Object {
            fn from(one: $object) -> Self {
                Object::$variant(Box::new(one))
            }
        }
    )*};
}

objects!(Medium: Media, Namespace: Namespace, Tenant: Tenant, Controller: Controller);

/// A change that is made as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Create the object. A controller gets the namespaces that it lists.
    Create(Object),
    /// Create the controller with exactly these namespaces attached, listed or not.
    Restore(Box<Controller>, Vec<NamespaceId>),
    /// Delete the object.
    Delete(ObjectId),
    /// Attach the namespace to the controller.
    Attach(NamespaceId, ControllerId),
    /// Detach the namespace from the controller.
    Detach(NamespaceId, ControllerId),
    /// Apply the keys of a tenant, a namespace or a controller that can change at run time.
    Assign(Object),
    /// Change parameters of the medium's timing model.
    Retune(MediumId, Box<Timing>),
    /// Resize the namespace.
    Resize(NamespaceId, Size),
    /// Move the controller's queues to these reactors; to its own one if there are none.
    Move(ControllerId, Vec<usize>),
    /// Allow these hosts, with the secrets that their files have now.
    Allow(Vec<Host>),
    /// Read the files of TLS of the controller again, for NBD clients that come from now on.
    Renew(ControllerId),
    /// Change the log filter or format.
    Log(Box<Log>),
}

impl Step {
    /// The object that it changes.
    pub(crate) fn id(&self) -> ObjectId {
        match self {
            Step::Create(object) | Step::Assign(object) => object.id(),
            Step::Restore(controller, _) => controller.id(),
            Step::Delete(id) => id.clone(),
            Step::Attach(namespace, _)
            | Step::Detach(namespace, _)
            | Step::Resize(namespace, _) => namespace.clone().into(),
            Step::Retune(medium, _) => medium.clone().into(),
            Step::Move(controller, _) | Step::Renew(controller) => controller.clone().into(),
            Step::Allow(_) => ObjectId::Hosts,
            Step::Log(_) => ObjectId::Log,
        }
    }

    /// The event that it causes: what happens to which object.
    pub(crate) fn event(&self) -> (What, ObjectId) {
        match self {
            Step::Create(_) | Step::Restore(..) => (What::Created, self.id()),
            Step::Delete(_) => (What::Deleted, self.id()),
            Step::Attach(_, controller) | Step::Detach(_, controller) => {
                (What::Changed, controller.clone().into())
            }
            Step::Move(..) => (What::QueuesMoved, self.id()),
            Step::Assign(_)
            | Step::Retune(..)
            | Step::Resize(..)
            | Step::Allow(_)
            | Step::Renew(_)
            | Step::Log(_) => (What::Changed, self.id()),
        }
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// The step.
    pub(crate) step: Step,
    /// Details, in words.
    pub(crate) detail: String,
}

impl From<&Planned> for PlannedStep {
    fn from(planned: &Planned) -> Self {
        let (action, controller) = match &planned.step {
            Step::Create(_) | Step::Restore(..) => (StepAction::Create, None),
            Step::Delete(_) => (StepAction::Delete, None),
            Step::Attach(_, to) => (StepAction::Attach, Some(to.as_str().to_owned())),
            Step::Detach(_, from) => (StepAction::Detach, Some(from.as_str().to_owned())),
            Step::Assign(_)
            | Step::Retune(..)
            | Step::Resize(..)
            | Step::Move(..)
            | Step::Allow(_)
            | Step::Renew(_)
            | Step::Log(_) => (StepAction::Change, None),
        };
        let id = planned.step.id();
        PlannedStep {
            action,
            kind: id.kind(),
            name: id.name().to_owned(),
            controller,
            detail: planned.detail.clone(),
        }
    }
}
