//! Reloads of the configuration: the request, and the plan or result.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of an object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Medium.
    Media,
    /// Namespace.
    Namespace,
    /// Tenant.
    Tenant,
    /// Controller.
    Controller,
    /// Hosts over NVMe/TCP.
    Host,
    /// The log.
    Log,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Media => "media",
            Kind::Namespace => "namespace",
            Kind::Tenant => "tenant",
            Kind::Controller => "controller",
            Kind::Host => "host",
            Kind::Log => "log",
        }
    }
}

/// Object whose change is deferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// Reason, and the next step.
    pub why: String,
}

/// Options of a configuration reload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {
    /// Compute the plan without applying it. Default: false.
    #[serde(default)]
    pub dry_run: bool,
    /// Allow hosts to lose controllers and namespaces that are deleted or recreated; otherwise
    /// these are deferred. Default: false.
    #[serde(default)]
    pub detach_hosts: bool,
}

/// Result, or plan, of a configuration reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reload {
    /// Configuration file.
    pub file: String,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Steps in order.
    pub steps: Vec<PlannedStep>,
    /// Deferred changes: objects that keep their state until the next reload.
    pub held: Vec<Held>,
    /// Keys of the file that take effect only at the next start.
    pub restart: Vec<String>,
    /// Changes made at run time that the file overrides.
    pub lost: Vec<String>,
}

/// Action on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepAction {
    /// Create the object.
    Create,
    /// Change the object.
    Change,
    /// Delete the object.
    Delete,
    /// Attach a namespace to a controller.
    Attach,
    /// Detach a namespace from a controller.
    Detach,
}

/// Step of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedStep {
    /// Action on the object.
    pub action: StepAction,
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// Controller that a namespace is attached to or detached from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Details, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl PlannedStep {
    /// The step as one line, with `+`, `~` or `-` in front.
    pub fn line(&self) -> String {
        let (mark, word) = match self.action {
            StepAction::Create => ("+", ""),
            StepAction::Change => ("~", ""),
            StepAction::Delete => ("-", ""),
            StepAction::Attach => ("+", " attached"),
            StepAction::Detach => ("-", " detached"),
        };
        let object = match self.kind {
            Kind::Host | Kind::Log => self.kind.name().to_owned(),
            kind => format!("{} {}", kind.name(), self.name),
        };
        let detail = match (self.controller.is_some(), self.detail.as_str()) {
            (_, "") => String::new(),
            (true, detail) => format!(" {detail}"),
            (false, detail) => format!(": {detail}"),
        };
        format!("{mark} {object}{word}{detail}")
    }
}

impl Reload {
    /// A line for each step, and for each deferred change.
    pub fn lines(&self) -> Vec<String> {
        let steps = self.steps.iter().map(PlannedStep::line);
        let held = self.held.iter().map(|held| {
            format!(
                "! {} {} stays as it is: {}",
                held.kind.name(),
                held.name,
                held.why
            )
        });
        let restart = self.restart.iter();
        let restart =
            restart.map(|key| format!("! {key}: takes effect at the next start of the server"));
        steps.chain(held).chain(restart).collect()
    }

    /// Whether the file is applied completely.
    pub fn is_whole(&self) -> bool {
        self.held.is_empty() && self.restart.is_empty()
    }
}
