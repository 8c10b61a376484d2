//! Reload of the configuration file. The server is changed step by step until it matches the file,
//! each step as an operator would have requested it.
//!
//! The whole file is read and validated, and a plan is computed, before anything changes. A step
//! that fails ends the reload: completed steps stay, and the next reload continues from there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use api::config::{self, Config, Controller, Host, Namespace, Nbd};
use api::{FieldProblem, PlannedStep, Refusal, Reload, ReloadRequest};
use machine::files::read_text;

use super::{State, Supervisor};
use crate::reconcile::id::{ControllerId, Identified as _, NamespaceId, ObjectId};
use crate::reconcile::inventory::{Objects, find};
use crate::reconcile::merge::{Merged, merge};
use crate::reconcile::step::{Planned, Step};
use crate::reconcile::unfinished::Unfinished;
use crate::reconcile::{self, Actual, Placed, Plan};
use crate::survival;

/// The configuration file that the server was started with.
#[derive(Clone, Debug)]
pub struct Source {
    /// Absolute path.
    file: PathBuf,
    /// Its content at the start; its `[log]` as of the last reload.
    read: Config,
    /// Its objects, as of the last reload that was applied.
    then: Objects,
}

impl Source {
    /// The file, which the caller has just read.
    ///
    /// # Errors
    /// The working directory no longer exists.
    pub fn new(file: &Path, read: &Config) -> std::io::Result<Self> {
        Ok(Source {
            file: std::path::absolute(file)?,
            then: Objects::of(read),
            read: read.clone(),
        })
    }
}

/// A reload that is ready to be applied.
struct Decided {
    source: Source,
    /// The current content of the file.
    file: Config,
    /// The same as text.
    text: String,
    plan: Plan,
    /// Run-time changes that the file overrides.
    lost: Vec<String>,
    /// Whether hosts may lose controllers and namespaces.
    consent: bool,
}

impl Supervisor {
    /// Reloads the configuration file and applies it; a dry run only returns the plan.
    pub(crate) fn reload(&self, request: ReloadRequest) -> Result<Reload, Refusal> {
        let _turn = self.steer();
        let decided = self.lock().decide(request.detach_hosts)?;
        let told = told(&decided, request.dry_run);
        if request.dry_run {
            return Ok(told);
        }
        tracing::info!("configuration reloaded: {}", decided.source.file.display());
        for line in in_words(&told) {
            tracing::info!("{line}");
        }
        self.carry_out(decided)?;
        Ok(told)
    }

    fn carry_out(&self, decided: Decided) -> Result<(), Refusal> {
        let Decided {
            mut source,
            file,
            text,
            plan,
            consent,
            ..
        } = decided;
        let then = reconcile::taken_over(&source.then, &Objects::of(&file), &plan.held);
        source.then.clone_from(&then);
        self.lock().begin(&plan, source)?;
        let mut failed = None;
        let mut are_short = false;
        for (at, planned) in plan.steps.iter().enumerate() {
            if !are_short && !matches!(planned.step, Step::Detach(..)) {
                // not before the detachments: a list without a namespace that is still attached
                // would mean that an operator attached it
                reconcile::shorten_lists(&mut self.lock().config, &plan);
                are_short = true;
            }
            let spared = if consent {
                Ok(())
            } else {
                self.lock().spares_hosts(&planned.step, &plan)
            };
            let done = spared.and_then(|()| self.carry_out_step(&planned.step));
            if let Err(refusal) = done {
                failed = Some((at, refusal));
                break;
            }
            if let (Step::Log(log), Some(source)) = (&planned.step, &mut self.lock().source) {
                source.read.log = (**log).clone();
            }
        }
        let mut state = self.lock();
        state.is_reconciling = false;
        if let Some((at, refusal)) = failed {
            return Err(stopped(&plan.steps, at, &refusal));
        }
        let ended = state.end_plan(&plan);
        ended.map_err(|error| Refusal::failed(&error))?;
        state.keep_configuration(&text);
        Ok(())
    }
}

/// Refuses hosts with other NQNs than those that existing namespaces are visible to.
fn refuse_other_names(served: &Config, file: &Config, plan: &Plan) -> Result<(), Refusal> {
    let is_kept = |namespace: &&Namespace| {
        let delete = Step::Delete(namespace.id());
        plan.steps.iter().all(|planned| planned.step != delete)
    };
    for namespace in served.namespace.iter().filter(is_kept) {
        let mut hosts = namespace.hosts.iter().flatten();
        let is_another = |text: &&String| served.nqn_of(text) != file.nqn_of(text);
        if let Some(host) = hosts.find(is_another) {
            return Err(Refusal::conflict(format!(
                "namespace {} is visible to host {host}, which the file gives the NQN {} instead of {}: add a host of another name, or restart the server",
                namespace.name,
                file.nqn_of(host),
                served.nqn_of(host)
            )));
        }
    }
    Ok(())
}

/// The step that allows the hosts of the file, where they differ, or have secrets, whose files may
/// differ.
fn allowance(served: &Config, file: &Config) -> Option<Planned> {
    let is_in = |hosts: &[Host], host: &Host| hosts.iter().any(|one| one.nqn == host.nqn);
    let (old, new) = (&served.host, &file.host);
    let gone = old.iter().filter(|host| !is_in(new, host));
    let added = new.iter().filter(|host| !is_in(old, host));
    let changed = new
        .iter()
        .filter(|host| is_in(old, host) && !old.contains(host));
    let words = gone.map(|host| format!("{} is removed", host.nqn));
    let words = words.chain(added.map(|host| format!("{} is added", host.nqn)));
    let words = words.chain(changed.map(|host| format!("{} is changed", host.nqn)));
    let mut words: Vec<String> = words.collect();
    let has_file = |host: &Host| host.dhchap_key.is_some() || host.tls_key.is_some();
    if new.iter().any(has_file) {
        words.push("secrets are read again".to_owned());
    }
    (!words.is_empty()).then(|| Planned {
        step: Step::Allow(new.clone()),
        detail: words.join(", "),
    })
}

/// The steps that read the files of TLS of NBD clients again, which may differ: those of
/// controllers that stay.
fn renewals(served: &Config, file: &Config) -> Vec<Planned> {
    let stays = |controller: &&Controller| {
        let in_file = find(&file.controller, &controller.name);
        in_file.is_some_and(|it| it.nbd == controller.nbd && it.listen == controller.listen)
    };
    let has_tls = |controller: &&Controller| controller.nbd.as_ref().is_some_and(Nbd::has_tls);
    let kept = served.controller.iter().filter(has_tls).filter(stays);
    kept.map(|controller| Planned {
        step: Step::Renew(ControllerId::new(&controller.name)),
        detail: "files of TLS are read again".to_owned(),
    })
    .collect()
}

/// The plan, as the client gets it.
fn told(decided: &Decided, dry_run: bool) -> Reload {
    let restart = reconcile::needs_restart(&decided.source.read, &decided.file);
    Reload {
        file: decided.source.file.display().to_string(),
        dry_run,
        steps: decided.plan.steps.iter().map(PlannedStep::from).collect(),
        held: decided.plan.held.clone(),
        restart: restart.into_iter().map(str::to_owned).collect(),
        lost: decided.lost.clone(),
    }
}

/// The plan as lines for the log.
fn in_words(reload: &Reload) -> impl Iterator<Item = String> {
    let lost = reload.lost.iter().map(|line| format!("! {line}"));
    reload.lines().into_iter().chain(lost)
}

/// The error for a step that failed, with the steps before and after it.
fn stopped(steps: &[Planned], at: usize, refusal: &Refusal) -> Refusal {
    let (done, undone) = steps.split_at(at);
    let line = |planned: &Planned| PlannedStep::from(planned).line();
    let first = undone.first().map(line).unwrap_or_default();
    let done: Vec<String> = done.iter().map(line).collect();
    let done = match done.as_slice() {
        [] => "no step was applied before".to_owned(),
        lines => format!("done before: {}", lines.join("; ")),
    };
    let errors = undone.iter().enumerate().map(|(index, planned)| {
        let id = planned.step.id();
        FieldProblem {
            pointer: None,
            object: Some(format!("{} {}", id.kind().name(), id.name())),
            detail: match index {
                0 => refusal.detail.clone(),
                _ => format!("not done: {}", line(planned)),
            },
        }
    });
    Refusal {
        detail: format!(
            "stopped at `{first}`: {}\n{done}; {} more were not; reload again, and it goes on",
            refusal.detail,
            undone.len().saturating_sub(1)
        ),
        errors: errors.collect(),
        ..refusal.clone()
    }
}

impl State {
    /// Has the next process of this server begin with this configuration: what an operator has
    /// edited since counts when it is reloaded.
    fn keep_configuration(&self, text: &str) {
        if let Some(holder) = &self.holder
            && let Err(error) = holder.keep_bytes(survival::CONFIGURATION, text.as_bytes())
        {
            tracing::error!("the next process would begin with the former configuration: {error}");
        }
    }

    /// Reads the file and plans.
    fn decide(&self, consent: bool) -> Result<Decided, Refusal> {
        let Some(source) = self.source.clone() else {
            return Err(Refusal::conflict(
                "this server was started without --config: there is no file to read again; `nvmirage export` writes one that serves the same",
            ));
        };
        let file = read_again(&source.file, source.then == Objects::default());
        let (file, text) = file.map_err(|error| Refusal::invalid(api::in_a_line(&error)))?;
        let Merged { objects, lost } = merge(&source.then, &self.desired, &Objects::of(&file));
        let mut served = self.actual().map_err(|error| Refusal::failed(&error))?;
        served.config.host.clone_from(&file.host);
        let plan = reconcile::plan(&served, &objects, consent);
        let mut plan = plan.map_err(|(problems, held)| {
            let mut refusal = Refusal::of_problems(&problems);
            for held in held {
                let line = format!(
                    "{} {} stays as it is: {}",
                    held.kind.name(),
                    held.name,
                    held.why
                );
                refusal.detail = format!("{}\n{line}", refusal.detail);
            }
            let restart = reconcile::needs_restart(&source.read, &file);
            if !restart.is_empty() {
                refusal.detail = format!(
                    "{}\nthe file's {} takes effect after a restart",
                    refusal.detail,
                    restart.join(", ")
                );
            }
            refusal
        })?;
        refuse_other_names(&self.config, &file, &plan)?;
        // what the other steps create is for the hosts of the file
        plan.steps.splice(0..0, allowance(&self.config, &file));
        plan.steps.extend(renewals(&self.config, &file));
        if source.read.log != file.log {
            plan.steps.push(Planned {
                step: Step::Log(Box::new(file.log.clone())),
                detail: serde_json::to_string(&file.log).unwrap_or_default(),
            });
        }
        Ok(Decided {
            source,
            file,
            text,
            plan,
            lost,
            consent,
        })
    }

    /// Makes the plan's objects the desired ones, and saves that before the first step.
    fn begin(&mut self, plan: &Plan, source: Source) -> Result<(), Refusal> {
        self.refuse_while_ending()?;
        let mut desired = plan.end.clone();
        // what was desired before and is deferred now stays desired
        desired.add_held(&self.desired, &plan.held);
        if let Some(saved) = &mut self.saved {
            let kept = saved.plan(&source.then, &desired, &plan.unfinished);
            let kept = kept.context("nothing is changed: the plan cannot be saved");
            kept.map_err(|error| Refusal::failed(&error))?;
        }
        self.source = Some(source);
        self.desired = desired;
        self.unfinished = plan.unfinished.clone();
        self.is_reconciling = true;
        Ok(())
    }

    /// All steps are done: the configuration is the one that was requested, and subsystems compare
    /// with it from now on.
    fn end_plan(&mut self, plan: &Plan) -> anyhow::Result<()> {
        plan.end.clone().put_into(&mut self.config);
        self.unfinished = Unfinished::default();
        let touched = plan
            .steps
            .iter()
            .filter_map(|planned| match planned.step.id() {
                ObjectId::Namespace(id) => Some(id),
                _ => None,
            });
        let touched: Vec<NamespaceId> = touched.collect();
        let touched = touched.iter().map(NamespaceId::as_str).collect();
        for name in self.config.clone().subsystems() {
            self.say_anew(name, &touched)
                .with_context(|| format!("subsystem {name}"))?;
        }
        let kept = self.keep();
        kept.context(
            "the reload is applied, but cannot be saved: the next start repeats a part of it",
        )
    }

    /// Refuses a step that takes a drive from a host that attached after planning.
    fn spares_hosts(&self, step: &Step, plan: &Plan) -> Result<(), Refusal> {
        let deletes = |namespace: &NamespaceId| {
            let delete = Step::Delete(namespace.clone().into());
            plan.steps.iter().any(|planned| planned.step == delete)
        };
        let loses = match step {
            Step::Delete(ObjectId::Controller(controller)) => Some(controller),
            Step::Detach(namespace, controller) if deletes(namespace) => Some(controller),
            _ => None,
        };
        let loses = loses.map(ControllerId::as_str);
        match loses.filter(|controller| self.host_of(controller).is_some()) {
            Some(controller) => Err(Refusal::conflict(format!(
                "a host has attached to controller {controller} in the meantime: reload again for a plan that respects it"
            ))),
            None => Ok(()),
        }
    }

    /// The state that a plan depends on.
    fn actual(&self) -> anyhow::Result<Actual> {
        let views = self.views()?;
        let statuses = self.namespaces(&views)?.into_iter();
        let mut placed: BTreeMap<String, Placed> = statuses
            .filter_map(|status| {
                let placed = Placed {
                    medium: status.config.media,
                    subsystem: status.subsystem?,
                    controllers: status.controllers.into_iter().collect(),
                    made_by_host: status.made_by_host,
                };
                Some((status.config.name, placed))
            })
            .collect();
        for resting in &self.resting {
            placed.insert(
                resting.taken.name.clone(),
                Placed {
                    medium: resting.medium.clone(),
                    subsystem: resting.subsystem.clone(),
                    controllers: BTreeSet::new(),
                    made_by_host: true,
                },
            );
        }
        let controllers = self.config.controller.iter().map(|c| &c.name);
        let media = self.media.iter();
        Ok(Actual {
            config: self.config.clone(),
            desired: self.desired.clone(),
            unfinished: self.unfinished.clone(),
            hosts: controllers
                .filter(|c| self.host_of(c).is_some())
                .cloned()
                .collect(),
            placed,
            sizes: media
                .clone()
                .map(|m| (m.name.clone(), m.medium.size()))
                .collect(),
            homes: media
                .filter_map(|m| Some((m.name.clone(), m.home.get()?)))
                .collect(),
            reactors: self
                .subsystems
                .iter()
                .map(|live| (live.name.clone(), live.reactor))
                .collect(),
        })
    }
}

/// Reads and validates a configuration file for the second time.
///
/// # Errors
/// As [`config::from_file`]. Also where the file cannot be read twice, such as a pipe, or is empty,
/// such as a file that is being rewritten, and had objects before.
fn read_again(path: &Path, had_nothing: bool) -> anyhow::Result<(Config, String)> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot read the configuration {shown}"))?;
    ensure!(
        metadata.is_file(),
        "{shown} is not a regular file, so it cannot be reloaded: serve a configuration from a regular file, or restart the server"
    );
    let text = config::text_of(path, read_text)?;
    ensure!(
        had_nothing || !text.trim().is_empty(),
        "{shown} is empty, which would delete every object: write the new file elsewhere and rename it; to delete everything, put a comment in it"
    );
    let config = config::from_text(&text, read_text);
    let config = config.with_context(|| format!("{shown} cannot be used"))?;
    Ok((config, text))
}
