//! Reload of the configuration file. The server is changed step by step until it matches the file,
//! each step as an operator would have requested it.
//!
//! The whole file is read and validated, and a plan is computed, before anything changes. A step
//! that fails ends the reload: completed steps stay, and the next reload continues from there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use api::config::log::Log;
use api::config::object::{Object, When};
use api::config::{self, Config, Timing};
use api::{FieldProblem, Kind, PlannedStep, Refusal, Reload, ReloadRequest, What};
use machine::files::read_text;

use super::{State, Supervisor, refuse_problems};
use crate::logging;
use crate::reload::id::{ControllerId, ObjectId};
use crate::reload::{self, Deed, Placed, Plan, Served, Step};
use crate::saved::merge::{Merged, Named, Objects, find, merge};

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
    /// The objects after the reload, including those that are deferred.
    wanted: Objects,
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
            wanted,
            plan,
            consent,
            ..
        } = decided;
        let before = {
            let mut state = self.lock();
            let before = state.objects();
            state.pending = reload::pending(&before, &plan.end, &plan.steps);
            state.is_reloading = true;
            before
        };
        let mut failed = None;
        let mut let_go = false;
        for (at, step) in plan.steps.iter().enumerate() {
            if !let_go && !matches!(step.deed, Deed::Detach(_)) {
                // not before the detachments: a list without a namespace that is still attached
                // would mean that an operator attached it
                reload::let_go(&mut self.lock().config, &plan.end);
                let_go = true;
            }
            let done = match step.deed {
                Deed::Log => {
                    source.read.log = file.log.clone();
                    configure_log(&file.log)
                }
                _ if !consent => {
                    let spared = self.lock().spares_hosts(step, &plan);
                    spared.and_then(|()| self.do_step(step, &plan))
                }
                _ => self.do_step(step, &plan),
            };
            if let Err(refusal) = done {
                failed = Some((at, refusal));
                break;
            }
        }
        let undone = failed
            .as_ref()
            .map_or(&[][..], |(at, _)| &plan.steps[*at..]);
        let settled = self.lock().settle(&plan, undone);
        let mut state = self.lock();
        state.pending = reload::pending(&before, &plan.end, undone);
        state.is_reloading = false;
        let now = state.objects();
        source.then = reload::taken_over(&source.then, &Objects::of(&file), &wanted, &now);
        let kept = state.take_over(source);
        drop(state);
        if let Some((at, refusal)) = failed {
            return Err(stopped(&plan.steps, at, &refusal));
        }
        settled.and(kept).map_err(|error| Refusal::failed(&error))
    }

    fn do_step(&self, step: &Step, plan: &Plan) -> Result<(), Refusal> {
        let end = &plan.end;
        let name = step.id.name();
        match (&step.deed, &step.id) {
            (Deed::Detach(controller), _) => self.detach(name, controller.as_str(), true),
            (Deed::Attach(controller), _) => self.attach(name, controller.as_str()),
            (Deed::Delete, ObjectId::Media(_)) => self.delete_medium(name),
            (Deed::Delete, ObjectId::Namespace(_)) => self.delete_namespace(name),
            (Deed::Delete, ObjectId::Controller(_)) => self.delete_controller(name, true),
            (Deed::Delete, ObjectId::Tenant(_)) => self.delete_tenant(name),
            (Deed::Create, ObjectId::Media(_)) => self.create_medium(of(&end.media, name)?),
            (Deed::Create, ObjectId::Namespace(_)) => {
                self.create_namespace(of(&end.namespace, name)?)
            }
            (Deed::Create, ObjectId::Tenant(_)) => self.create_tenant(of(&end.tenant, name)?),
            (Deed::Create, ObjectId::Controller(id)) => {
                let mut controller = reload::as_made(of(&end.controller, name)?, end);
                let mut has: BTreeSet<String> = controller.namespaces.iter().cloned().collect();
                if let Some(kept) = plan.kept.get(id) {
                    has.clone_from(kept);
                    controller.namespaces.retain(|listed| kept.contains(listed));
                }
                self.create_controller(controller)?;
                self.change(What::Changed, ("controller", name), |state| {
                    state.have(name, &has)
                })
            }
            (Deed::Resize(size), _) => self.resize(name, *size, false),
            (Deed::Retune, _) => {
                let timing = of(&end.media, name)?.timing;
                self.change(What::Changed, ("media", name), |state| {
                    state.retune_as(name, timing)
                })
            }
            (Deed::Move, _) => {
                let mut reactors = of(&end.controller, name)?.reactors;
                if reactors.is_empty() {
                    reactors.extend(self.lock().reactor_of(name));
                }
                self.move_queues(name, &reactors, None)
            }
            (Deed::Assign, id) => {
                let kind = id.kind();
                self.change(What::Changed, (kind.name(), name), |state| {
                    state.assign(kind, name, end)
                })
            }
            (Deed::Log, _) | (Deed::Delete | Deed::Create, ObjectId::Log) => Ok(()),
        }
    }
}

fn of<T: Named>(all: &[T], name: &str) -> Result<T, Refusal> {
    let found = find(all, name).cloned();
    found.ok_or_else(|| Refusal::not_found(T::KIND, name))
}

/// Applies `[log]`; a filter from the command line or the environment stays in force.
fn configure_log(log: &Log) -> Result<(), Refusal> {
    logging::configure_anew(log).map_err(Refusal::invalid)
}

/// The plan, as the client gets it.
fn told(decided: &Decided, dry_run: bool) -> Reload {
    let restart = reload::needs_restart(&decided.source.read, &decided.file);
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
fn stopped(steps: &[Step], at: usize, refusal: &Refusal) -> Refusal {
    let (done, undone) = steps.split_at(at);
    let line = |step: &Step| PlannedStep::from(step).line();
    let first = undone.first().map(line).unwrap_or_default();
    let done: Vec<String> = done.iter().map(line).collect();
    let done = match done.as_slice() {
        [] => "no step was applied before".to_owned(),
        lines => format!("done before: {}", lines.join("; ")),
    };
    let errors = undone.iter().enumerate().map(|(index, step)| FieldProblem {
        pointer: None,
        object: Some(format!("{} {}", step.id.kind().name(), step.id.name())),
        detail: match index {
            0 => refusal.detail.clone(),
            _ => format!("not done: {}", line(step)),
        },
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
    /// Reads the file and plans.
    fn decide(&self, consent: bool) -> Result<Decided, Refusal> {
        let Some(source) = self.source.clone() else {
            return Err(Refusal::conflict(
                "this server was started without --config: there is no file to read again; `nvmirage export` writes one that serves the same",
            ));
        };
        let file = read_again(&source.file);
        let file = file.map_err(|error| Refusal::invalid(format!("{error:#}")))?;
        let now = self.objects();
        let Merged { objects, lost } = merge(&source.then, &now, &Objects::of(&file));
        let served = self.served().map_err(|error| Refusal::failed(&error))?;
        let plan = reload::plan(&served, &objects, consent);
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
            let restart = reload::needs_restart(&source.read, &file);
            if !restart.is_empty() {
                refusal.detail = format!(
                    "{}\nthe file's {} takes effect after a restart",
                    refusal.detail,
                    restart.join(", ")
                );
            }
            refusal
        })?;
        if source.read.log != file.log {
            plan.steps.push(Step {
                id: ObjectId::Log,
                deed: Deed::Log,
                detail: serde_json::to_string(&file.log).unwrap_or_default(),
            });
        }
        Ok(Decided {
            source,
            file,
            wanted: objects,
            plan,
            lost,
            consent,
        })
    }

    /// The objects that exist, or are being recreated.
    pub(super) fn objects(&self) -> Objects {
        reload::and_pending(Objects::of(&self.config), &self.pending)
    }

    /// Accepts an operator's change of an object that a failed reload was about to recreate: the
    /// reload's version no longer counts.
    pub(super) fn heed(&mut self, (kind, name): (&str, &str)) {
        fn forget<T: Named>(all: &mut Vec<T>, kind: &str, name: &str) {
            all.retain(|one| (T::KIND, one.name()) != (kind, name));
        }
        if self.pending == Objects::default() {
            return;
        }
        let pending = &mut self.pending;
        forget(&mut pending.media, kind, name);
        forget(&mut pending.namespace, kind, name);
        forget(&mut pending.tenant, kind, name);
        forget(&mut pending.controller, kind, name);
        let mut together = self.config.clone();
        self.objects().put_into(&mut together);
        if !together.validate().is_empty() {
            self.pending = Objects::default();
        }
    }

    /// Refuses a step that takes a drive from a host that attached after planning.
    fn spares_hosts(&self, step: &Step, plan: &Plan) -> Result<(), Refusal> {
        let deletes = |other: &&Step| other.id == step.id && other.deed == Deed::Delete;
        let loses = match (&step.deed, &step.id) {
            (Deed::Delete, ObjectId::Controller(controller)) => Some(controller),
            (Deed::Detach(controller), _) => plan.steps.iter().find(deletes).map(|_| controller),
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

    /// Attaches exactly these namespaces to a recreated controller, and recreates the ones that
    /// were deleted with it.
    fn have(&mut self, controller: &str, names: &BTreeSet<String>) -> Result<(), Refusal> {
        let config = find(&self.config.controller, controller).cloned();
        let config = config.ok_or_else(|| Refusal::not_found("controller", controller))?;
        let has = self.attached_to(controller)?;
        for namespace in has.difference(names) {
            self.detach(namespace, controller)?;
        }
        // in list order, which determines their identifiers
        let unlisted = names
            .iter()
            .filter(|name| !config.namespaces.contains(name));
        for namespace in config.namespaces.iter().chain(unlisted) {
            if names.contains(namespace) && !has.contains(namespace) {
                self.attach(namespace, controller)?;
            }
        }
        let pool = self.config.namespaces_of(config.subsystem());
        let pool: Vec<String> = pool.into_iter().map(|n| n.name.clone()).collect();
        for namespace in pool {
            if self.find(&namespace)?.is_none() {
                self.give_to_pool(&namespace)?;
            }
        }
        Ok(())
    }

    fn attached_to(&self, controller: &str) -> Result<BTreeSet<String>, Refusal> {
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let views = self.views().map_err(failed)?;
        let statuses = self.namespaces(&views).map_err(failed)?.into_iter();
        let its = statuses.filter(|n| n.controllers.iter().any(|c| c == controller));
        Ok(its.map(|n| n.config.name).collect())
    }

    /// The state that a plan depends on.
    fn served(&self) -> anyhow::Result<Served> {
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
        Ok(Served {
            config: self.config.clone(),
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

    /// The reactor that serves a controller.
    fn reactor_of(&self, controller: &str) -> Option<usize> {
        let mut served = self.controllers.iter();
        served.find(|c| c.name == controller).map(|c| c.reactor)
    }

    /// Applies a timing model that differs only in parameters that can change at run time.
    fn retune_as(&mut self, name: &str, timing: Option<Timing>) -> Result<(), Refusal> {
        let at = self.config.media.iter().position(|m| m.name == name);
        let (Some(at), Some(timing)) = (at, timing) else {
            return Err(Refusal::not_found("media", name));
        };
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let size = self.medium(name).map_err(failed)?.size();
        let parameters = timing.parameters(size);
        let parameters = parameters.map_err(|problems| Refusal::invalid(problems.join("; ")))?;
        self.retune_on_reactor(name, parameters).map_err(failed)?;
        self.config.media[at].timing = Some(timing);
        Ok(())
    }

    /// Applies the live keys of a tenant, a namespace or a controller.
    fn assign(&mut self, kind: Kind, name: &str, end: &Objects) -> Result<(), Refusal> {
        let mut next = self.config.clone();
        match kind {
            Kind::Tenant => {
                let wanted = of(&end.tenant, name)?;
                let tenants = next.tenant.iter_mut().filter(|one| one.name == name);
                tenants.for_each(|one| *one = wanted.clone());
            }
            Kind::Namespace => {
                let wanted = of(&end.namespace, name)?;
                for one in next.namespace.iter_mut().filter(|one| one.name == name) {
                    *one = one.with(&wanted, When::Live);
                }
            }
            _ => {
                let wanted = of(&end.controller, name)?;
                let controllers = next.controller.iter_mut().filter(|one| one.name == name);
                for one in controllers {
                    *one = one.with(&wanted, When::Live);
                }
            }
        }
        refuse_problems(&next)?;
        let before = std::mem::replace(&mut self.config, next);
        let told = match kind {
            Kind::Controller => self.tell_of_controller(name),
            _ => Ok(()),
        };
        let told = told.and_then(|()| self.tell_of_tenants());
        if told.is_err() {
            self.config = before;
        }
        told
    }

    /// Makes the configuration the one that was requested, except for steps in `undone`, and
    /// updates the bases of subsystems.
    fn settle(&mut self, plan: &Plan, undone: &[Step]) -> anyhow::Result<()> {
        reload::settle(&mut self.config, &plan.end, undone);
        let left = reload::unfinished(undone, &plan.end);
        let done = plan.steps.iter().filter(|step| !left.contains(&step.id));
        let touched = done.filter_map(|step| match &step.id {
            ObjectId::Namespace(id) => Some(id.as_str()),
            _ => None,
        });
        let touched: BTreeSet<&str> = touched.collect();
        for name in self.config.clone().subsystems() {
            self.say_anew(name, &touched)
                .with_context(|| format!("subsystem {name}"))?;
        }
        Ok(())
    }

    /// Makes this the file that the next reload compares with.
    fn take_over(&mut self, source: Source) -> anyhow::Result<()> {
        let then = source.then.clone();
        self.source = Some(source);
        let now = self.objects();
        let kept = self.saved.as_mut();
        let kept = kept.map_or(Ok(()), |saved| saved.rebase(then, now));
        kept.context("the reload is applied, but cannot be saved: the next start compares with the earlier file")
    }
}

/// Reads and validates a configuration file for the second time.
///
/// # Errors
/// As [`config::from_file`]. Also where the file cannot be read twice, such as a pipe, or is empty,
/// such as a file that is being rewritten.
fn read_again(path: &Path) -> anyhow::Result<Config> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot read the configuration {shown}"))?;
    ensure!(
        metadata.is_file(),
        "{shown} is not a regular file, so it cannot be reloaded: serve a configuration from a regular file, or restart the server"
    );
    let text = config::text_of(path, read_text)?;
    ensure!(
        !text.trim().is_empty(),
        "{shown} is empty, which would delete every object: write the new file elsewhere and rename it; to delete everything, put a comment in it"
    );
    config::from_text(&text, read_text).with_context(|| format!("{shown} cannot be used"))
}
