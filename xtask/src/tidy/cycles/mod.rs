//! Modules of a crate that import each other in a circle.
//!
//! What is looked at are the modules at the top of each crate under `crates/`, and its root. One
//! **uses** another where a file of it names that by a path that begins at the crate: `crate::b`,
//! or as many `super` as lead there. A name that the root has from a module (`pub use b::Item`)
//! stands for that module, wherever it is named as `crate::Item`; that the root gives it out is no
//! use.
//!
//! It does NOT look at tests (`#[cfg(test)]`), at comments and literals, at modules within a
//! module, at what `crate::*` brings, or behind a re-export of a module: who names `crate::b::Item`
//! uses `b`, whoever defines it.

mod paths;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::paths::{File, Import, Named, file};
use super::Finding;

/// What the root of a crate is called beside its modules.
const ROOT: &str = "the root";

/// Checks the sources of crates, by their path from the root of the project; other files are passed
/// over.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<File>> = BTreeMap::new();
    for (path, source) in sources {
        if let Some((name, file)) = file(path, source) {
            crates.entry(name).or_default().push(file);
        }
    }
    let found = crates.into_iter().flat_map(|(name, files)| {
        let circles = circles(&uses(files));
        circles.into_iter().map(move |what| Finding {
            file: format!("crates/{name}"),
            line: 0,
            what,
        })
    });
    found.collect()
}

/// Which modules at the top of a crate use which, each with the first place where it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

fn uses(files: Vec<File>) -> Uses {
    let tests: Vec<Vec<String>> = files
        .iter()
        .flat_map(|file| file.found.tests.iter().cloned())
        .collect();
    let is_test = |module: &[String]| tests.iter().any(|test| module.starts_with(test));
    let files: Vec<File> = files
        .into_iter()
        .filter(|file| !is_test(&file.module))
        .collect();
    let modules = files
        .iter()
        .flat_map(|file| file.found.inline.iter().chain([&file.module]));
    let mut root = Root {
        modules: modules
            .filter_map(|module| module.first().cloned())
            .collect(),
        names: BTreeMap::new(),
    };
    for named in files.iter().flat_map(|file| &file.found.paths) {
        if let (true, Import::As(name, _)) = (named.within.is_empty(), &named.import) {
            root.names.insert(name.clone(), named.path.clone());
        }
    }
    let mut uses = Uses::new();
    for file in &files {
        for named in &file.found.paths {
            let user = named.within.first().map_or(ROOT, String::as_str);
            let used = root.of(named).filter(|used| *used != user);
            if let Some(used) = used {
                let place = || format!("{}:{}", file.path, named.line);
                let of_user = uses.entry(user.to_owned()).or_default();
                of_user.entry(used.to_owned()).or_insert_with(place);
            }
        }
    }
    uses
}

/// What names at the root of a crate stand for.
struct Root {
    modules: BTreeSet<String>,
    /// What `use` brings there.
    names: BTreeMap<String, Vec<String>>,
}

impl Root {
    /// The module at the top, or the root, that a path leads to; `None` where that is another
    /// crate, or not known.
    fn of(&self, named: &Named) -> Option<&str> {
        let at_root = named.within.is_empty();
        let is_import = matches!(named.import, Import::As(..));
        if at_root && matches!(named.import, Import::As(_, true)) {
            return None;
        }
        let mut depth = named.within.len();
        let mut rest = named.path.as_slice();
        let mut is_relative = false;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => depth = 0,
                "self" => {}
                "super" => depth = depth.checked_sub(1)?,
                _ => break,
            }
            is_relative = true;
            rest = behind;
        }
        if depth > 0 || !(is_relative || at_root) {
            return None;
        }
        match rest {
            // The root as a whole: `use super::*`.
            [] => None,
            // A word of the code that is called as a module: a field, say.
            [name] if !is_relative && !is_import && self.modules.contains(name) => None,
            _ => self.leads(rest, is_relative, 8),
        }
    }

    /// Where a path leads that begins at the root, through at most so many names.
    fn leads(&self, path: &[String], is_own: bool, most: u32) -> Option<&str> {
        let first = path.first()?;
        if let Some(module) = self.modules.get(first) {
            return Some(module);
        }
        match self.names.get(first) {
            Some(path) => {
                let own = path
                    .iter()
                    .take_while(|word| matches!(word.as_str(), "crate" | "self"));
                let skipped = own.count();
                let is_own = skipped > 0;
                self.leads(&path[skipped..], is_own, most.checked_sub(1)?)
            }
            None => is_own.then_some(ROOT),
        }
    }
}

/// The circles, each as what is wrong.
fn circles(uses: &Uses) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for module in uses.keys() {
        let reached = reachable(uses, module);
        let circle: BTreeSet<&str> = reached
            .iter()
            .copied()
            .filter(|other| reachable(uses, other).contains(module.as_str()))
            .collect();
        if circle.is_empty() || !seen.insert(circle.clone()) {
            continue;
        }
        let names: Vec<&str> = circle.iter().copied().collect();
        let edges: Vec<String> = circle
            .iter()
            .filter_map(|user| Some((*user, uses.get(*user)?)))
            .flat_map(|(user, used)| used.iter().map(move |(used, place)| (user, used, place)))
            .filter(|(_, used, _)| circle.contains(used.as_str()))
            .map(|(user, used, place)| format!("{user} uses {used} at {place}"))
            .collect();
        circles.push(format!(
            "the modules {} import each other in a circle: {}; what they share goes below them",
            names.join(", "),
            edges.join(", ")
        ));
    }
    circles
}

/// What a module uses, and what that uses, and so on.
fn reachable<'a>(uses: &'a Uses, module: &str) -> BTreeSet<&'a str> {
    let used_by = |module: &str| {
        let used = uses.get(module).into_iter().flat_map(BTreeMap::keys);
        used.map(String::as_str)
    };
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = used_by(module).collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(used_by(module));
        }
    }
    reached
}
