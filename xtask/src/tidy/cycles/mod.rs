//! Modules of a crate that import each other in a circle.
//!
//! For each module of a crate under `crates/` its children are looked at, and at the top its root
//! as well. One **uses** another where a file of it names that by a path that begins at the crate:
//! `crate::a::b`, or as many `super` as lead there. A name that the parent has from a child (`use
//! b::Item`) stands for that child; that the parent gives it out is no use.
//!
//! It does NOT look at tests (`#[cfg(test)]`), at comments and literals, at uses between a module
//! below the root and its own children (they are one subject), at what `*` brings, or behind a
//! re-export of a module: a file that names `crate::b::Item` uses `b`, whichever module defines it.

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
    let mut findings = Vec::new();
    for (name, files) in crates {
        let tree = Tree::new(files);
        for scope in tree.scopes() {
            let file = [&["crates".to_owned(), name.to_owned()], scope].concat();
            let what = circles(&tree.uses(scope));
            findings.extend(what.into_iter().map(|what| Finding {
                file: file.join("/"),
                line: 0,
                what,
            }));
        }
    }
    findings
}

/// Which children of a module use which, each with the first place where it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The modules of a crate, tests apart.
struct Tree {
    files: Vec<File>,
    modules: BTreeSet<Vec<String>>,
    /// The names that `use` brings into each module, with what they stand for from the root on.
    names: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

impl Tree {
    fn new(files: Vec<File>) -> Tree {
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
            .flat_map(|file| file.found.inline.iter().chain([&file.module]))
            .filter(|module| !module.is_empty())
            .cloned()
            .collect();
        let mut tree = Tree {
            files,
            modules,
            names: BTreeMap::new(),
        };
        let mut names: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for named in tree.files.iter().flat_map(|file| &file.found.paths) {
            if let (Import::As(name, _), Some((path, _))) = (&named.import, tree.absolute(named)) {
                let of_module = names.entry(named.within.clone()).or_default();
                of_module.insert(name.clone(), path);
            }
        }
        tree.names = names;
        tree
    }

    /// The modules that have children, the root among them.
    fn scopes(&self) -> BTreeSet<&[String]> {
        let parent = |module: &'_ Vec<String>| module.len() - 1;
        self.modules
            .iter()
            .map(|module| &module[..parent(module)])
            .collect()
    }

    /// A path from the root of the crate on, and whether it says so itself; `None` where that is
    /// another crate, or not known.
    fn absolute(&self, named: &Named) -> Option<(Vec<String>, bool)> {
        let mut path = named.within.clone();
        let mut rest = named.path.as_slice();
        let mut is_relative = false;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => path.clear(),
                "self" => {}
                "super" => drop(path.pop()?),
                _ => break,
            }
            is_relative = true;
            rest = behind;
        }
        path.extend_from_slice(rest);
        Some((path, is_relative))
    }

    /// Which children of a module use which.
    fn uses(&self, scope: &[String]) -> Uses {
        let mut uses = Uses::new();
        for file in &self.files {
            for named in &file.found.paths {
                let Some(below) = named.within.strip_prefix(scope) else {
                    continue;
                };
                let user = below.first().map_or(ROOT, String::as_str);
                let used = self.used(scope, named).filter(|used| *used != user);
                // A module and its children are one subject: only the root of a crate is looked at.
                let is_parent = |module: &str| module == ROOT && !scope.is_empty();
                let used = used.filter(|used| !is_parent(used) && !is_parent(user));
                if let Some(used) = used {
                    let place = || format!("{}:{}", file.path, named.line);
                    let of_user = uses.entry(user.to_owned()).or_default();
                    of_user.entry(used.to_owned()).or_insert_with(place);
                }
            }
        }
        uses
    }

    /// The child of a module, or that module itself, that a path leads to.
    fn used(&self, scope: &[String], named: &Named) -> Option<&str> {
        let in_scope = named.within == scope;
        let is_import = matches!(named.import, Import::As(..));
        if in_scope && matches!(named.import, Import::As(_, true)) {
            return None;
        }
        let (path, is_relative) = self.absolute(named)?;
        if !(is_relative || in_scope) {
            return None;
        }
        match path.strip_prefix(scope)? {
            // The module as a whole: `use super::*`.
            [] => None,
            // A word of the code that is called as a module: a field, say.
            [name] if !is_relative && !is_import && self.child(scope, name).is_some() => None,
            _ => self.leads(scope, &path, is_relative, 8),
        }
    }

    fn child(&self, scope: &[String], name: &str) -> Option<&str> {
        let mut path = scope.to_vec();
        path.push(name.to_owned());
        let module = self.modules.get(&path)?;
        module.last().map(String::as_str)
    }

    /// Where a path leads that goes through a module, through at most so many names.
    fn leads(&self, scope: &[String], path: &[String], is_own: bool, most: u32) -> Option<&str> {
        let first = path.strip_prefix(scope)?.first()?;
        if let Some(child) = self.child(scope, first) {
            return Some(child);
        }
        match self.names.get(scope).and_then(|names| names.get(first)) {
            Some(path) => {
                let is_own = false;
                self.leads(scope, path, is_own, most.checked_sub(1)?)
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
