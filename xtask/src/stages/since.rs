//! The stages that a change needs: what changed since a commit, and which stages look at it.
//!
//! Files of a package count for the stages that run the package, or one that depends on it. For
//! other files there is a table. A file that neither knows needs every stage, so that a forgotten
//! line costs time and never a check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace::Workspace;

/// Stages that every change needs: seconds each.
const ALWAYS: &[&str] = &["setup", "fmt", "tidy"];

/// Stages that a change of any package needs.
const OF_PACKAGES: &[&str] = &["clippy", "unit", "mutants"];

/// The packages that a stage runs.
const PACKAGES: &[(&str, &[&str])] = &[
    ("build", &["nvmirage"]),
    ("counts", &["tests-counts"]),
    ("loom", &["memory"]),
    ("oracle", &["tests-oracle"]),
    ("sim", &["tests-sim"]),
    ("golden", &["simulate"]),
    ("protocol", &["tests-protocol"]),
    ("web", &["nvmirage"]),
    ("soak", &["nvmirage", "tests-soak"]),
    ("fuzz", &["tests-fuzz"]),
    ("fuzz-search", &["tests-fuzz"]),
    ("guests", &["nvmirage", "tests-vm"]),
    ("guests-slow", &["nvmirage", "tests-vm"]),
    ("book", &["nvmirage"]),
    ("demo", &["nvmirage"]),
];

/// What a file needs beside what its package does.
#[derive(Debug, Clone, Copy)]
enum Needs {
    /// These stages.
    Only(&'static [&'static str]),
    /// All of them.
    Everything,
}

/// By the beginning of a path; the longest one counts.
const FILES: &[(&str, Needs)] = &[
    ("ARCHITECTURE.md", Needs::Only(&[])),
    // The package has it.
    ("CHANGELOG.md", Needs::Only(&["build"])),
    ("CONTRIBUTING.md", Needs::Only(&[])),
    ("LICENSE-", Needs::Only(&[])),
    ("README.md", Needs::Only(&["book", "demo"])),
    ("ROADMAP.md", Needs::Only(&[])),
    ("book/", Needs::Only(&["book"])),
    // Unit tests compare these pages with what the program prints.
    ("book/src/reference/", Needs::Only(&["unit", "book"])),
    ("clippy.toml", Needs::Only(&["clippy"])),
    ("crates/", Needs::Only(&[])),
    ("deny.toml", Needs::Only(&["deny"])),
    ("examples/", Needs::Only(&["unit", "guests", "book"])),
    ("fuzz/", Needs::Only(&["deny", "fuzz", "fuzz-search"])),
    ("fuzz/corpus/", Needs::Only(&["fuzz"])),
    ("package/", Needs::Only(&["build", "guests"])),
    ("tests/", Needs::Only(&[])),
    ("web/", Needs::Only(&["build", "web"])),
    ("xtask/", Needs::Everything),
    ("xtask/bench/", Needs::Only(&[])),
    ("xtask/src/mutants/list/", Needs::Only(&[])),
];

/// What changed, and what has to run.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The files, relative to the root.
    pub(crate) files: Vec<String>,
    /// The names of the stages; all where there is none.
    stages: Option<BTreeSet<&'static str>>,
    /// The packages whose unit tests run; all where there is none.
    pub(crate) packages: Option<BTreeSet<String>>,
}

impl Changes {
    /// What changed between `commit` and the working tree, files that git does not know yet
    /// included.
    ///
    /// # Errors
    /// git has no such commit, or cargo cannot be run.
    pub(crate) fn since(workspace: &Workspace, commit: &str) -> Result<Self> {
        let range = ["diff", "--name-only", "--no-renames", "-z", commit, "--"];
        let mut files = names(workspace, &range)?;
        let untracked = ["ls-files", "-z", "--others", "--exclude-standard"];
        files.extend(names(workspace, &untracked)?);
        Ok(Self::of(files, &Packages::read(workspace)?))
    }

    /// The files that the newest commit changed; none where git does not know.
    pub(crate) fn newest(workspace: &Workspace) -> Vec<String> {
        Self::recent(workspace, 1).unwrap_or_default()
    }

    /// The files that this number of newest commits changed.
    ///
    /// # Errors
    /// git does not know: there are fewer commits.
    pub(crate) fn recent(workspace: &Workspace, commits: u32) -> Result<Vec<String>> {
        let from = format!("HEAD~{commits}");
        let range = ["diff", "--name-only", "--no-renames", "-z", &from, "--"];
        names(workspace, &range)
    }

    fn of(files: Vec<String>, packages: &Packages) -> Self {
        let mut stages: BTreeSet<_> = ALWAYS.iter().copied().collect();
        let mut changed = BTreeSet::new();
        for file in &files {
            changed.extend(packages.of_file(file));
            match needs(file) {
                Needs::Only(names) => stages.extend(names),
                Needs::Everything => {
                    return Self {
                        files,
                        stages: None,
                        packages: None,
                    };
                }
            }
        }
        // A file of no package may be read by any test.
        let all_tests = stages.contains("unit");
        if !changed.is_empty() {
            stages.extend(OF_PACKAGES);
        }
        let runs_changed = |name: &str| !packages.runs(name).is_disjoint(&changed);
        for (stage, roots) in PACKAGES {
            if roots.iter().any(|name| runs_changed(name)) {
                stages.insert(stage);
            }
        }
        let affected = packages.folders.values().filter(|name| runs_changed(name));
        Self {
            packages: (!all_tests).then(|| affected.cloned().collect()),
            stages: Some(stages),
            files,
        }
    }

    /// Whether a stage looks at what changed.
    pub(crate) fn needs(&self, stage: &str) -> bool {
        let stages = self.stages.as_ref();
        stages.is_none_or(|stages| stages.contains(stage))
    }
}

/// What a file needs beside what its package does.
fn needs(file: &str) -> Needs {
    let known = FILES.iter().filter(|(start, _)| file.starts_with(start));
    let longest = known.max_by_key(|(start, _)| start.len());
    longest.map_or(Needs::Everything, |(_, needs)| *needs)
}

/// Names of files that git prints, each ended by a zero.
fn names(workspace: &Workspace, args: &[&str]) -> Result<Vec<String>> {
    let output = workspace.command("git".as_ref())?.args(args).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", args[0], said.trim());
    let text = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let names = text.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

/// The packages of the workspace, and which of them each uses.
#[derive(Debug, Default)]
struct Packages {
    /// By folder, relative to the root, with a slash behind it.
    folders: BTreeMap<String, String>,
    /// What the code of each uses.
    code: BTreeMap<String, BTreeSet<String>>,
    /// What its tests use besides.
    tests: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    fn read(workspace: &Workspace) -> Result<Self> {
        let mut cargo = workspace.cargo(&["metadata", "--no-deps", "--format-version=1"])?;
        let output = cargo.arg("--offline").output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", said.trim());
        Self::parse(&serde_json::from_slice(&output.stdout)?, &workspace.root)
    }

    fn parse(metadata: &Value, root: &Path) -> Result<Self> {
        let mut all = Self::default();
        let packages = metadata["packages"].as_array().context("no packages")?;
        for package in packages {
            let text = |key: &str| package[key].as_str().with_context(|| format!("no {key}"));
            let name = text("name")?;
            let manifest = Path::new(text("manifest_path")?);
            let folder = manifest.parent().context("a manifest has a folder")?;
            let folder = folder.strip_prefix(root)?.display().to_string();
            all.folders.insert(format!("{folder}/"), name.to_owned());
            let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            for dependency in dependencies.filter(|dependency| dependency["path"].is_string()) {
                let used = dependency["name"].as_str().context("no name")?.to_owned();
                match dependency["kind"].as_str() {
                    Some("dev") => tests.insert(used),
                    _ => code.insert(used),
                };
            }
            all.code.insert(name.to_owned(), code);
            all.tests.insert(name.to_owned(), tests);
        }
        Ok(all)
    }

    /// The package that a file is of: that of the longest folder.
    fn of_file(&self, file: &str) -> Option<String> {
        let folders = self
            .folders
            .iter()
            .filter(|(folder, _)| file.starts_with(*folder));
        let longest = folders.max_by_key(|(folder, _)| folder.len());
        longest.map(|(_, name)| name.clone())
    }

    /// The package, and all that its code and its tests use.
    fn runs(&self, name: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::from([name.to_owned()]);
        let mut open: Vec<_> = [&self.code, &self.tests]
            .into_iter()
            .filter_map(|used| used.get(name))
            .flatten()
            .collect();
        while let Some(name) = open.pop() {
            if found.insert(name.clone()) {
                open.extend(self.code.get(name).into_iter().flatten());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace::locate().unwrap()
    }

    fn changes(files: &[&str]) -> Changes {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Changes::of(files, &Packages::read(&workspace()).unwrap())
    }

    fn stages(file: &str) -> Vec<&'static str> {
        let needed = changes(&[file]).stages.unwrap();
        let others = needed.into_iter().filter(|stage| !ALWAYS.contains(stage));
        others.collect()
    }

    #[test]
    fn every_stage_of_the_table_exists_and_every_package_does() {
        let packages = Packages::read(&workspace()).unwrap();
        let tables = PACKAGES.iter().map(|(stage, _)| *stage);
        let files = FILES.iter().flat_map(|(_, needs)| match needs {
            Needs::Only(stages) => *stages,
            Needs::Everything => &[],
        });
        for stage in tables
            .chain(files.copied())
            .chain(OF_PACKAGES.iter().copied())
        {
            assert!(super::super::names().any(|name| name == stage), "{stage}");
        }
        for name in PACKAGES.iter().flat_map(|(_, roots)| *roots) {
            assert!(packages.code.contains_key(*name), "{name}");
        }
    }

    #[test]
    fn every_stage_is_in_the_table_or_needed_always() {
        for stage in super::super::names() {
            let known = ALWAYS.iter().chain(OF_PACKAGES).any(|name| *name == stage);
            let in_table = PACKAGES.iter().any(|(name, _)| *name == stage) || stage == "deny";
            assert!(known || in_table, "no change needs {stage}");
        }
    }

    #[test]
    fn every_entry_of_the_table_is_the_beginning_of_a_file() {
        let files = names(&workspace(), &["ls-files", "-z"]).unwrap();
        for (start, _) in FILES {
            let is_there = files.iter().any(|file| file.starts_with(start));
            assert!(is_there, "{start}");
        }
    }

    #[test]
    fn a_change_of_the_models_needs_what_runs_models() {
        let needed = stages("crates/model/src/lib.rs");
        for stage in [
            "clippy", "unit", "mutants", "oracle", "sim", "golden", "demo",
        ] {
            assert!(needed.contains(&stage), "{stage}: {needed:?}");
        }
        for stage in ["loom", "deny"] {
            assert!(!needed.contains(&stage), "{stage}: {needed:?}");
        }
    }

    #[test]
    fn a_change_reaches_what_depends_on_it_indirectly() {
        // The program draws by way of `lab`.
        let needed = stages("crates/plot/src/lib.rs");
        assert!(
            needed.contains(&"demo") && needed.contains(&"book"),
            "{needed:?}"
        );
        assert!(!needed.contains(&"counts"), "{needed:?}");
    }

    #[test]
    fn a_change_of_tests_needs_only_them() {
        assert_eq!(
            stages("tests/protocol/src/host.rs"),
            ["clippy", "mutants", "protocol", "unit"]
        );
        let packages = changes(&["tests/protocol/src/host.rs"]).packages.unwrap();
        assert_eq!(packages.into_iter().collect::<Vec<_>>(), ["tests-protocol"]);
        // The tests of one package use it.
        let changed = changes(&["crates/loopback/src/lib.rs"]);
        let packages = changed.packages.unwrap();
        assert!(packages.contains("driver") && packages.contains("conformance"));
        assert!(!packages.contains("model"), "{packages:?}");
    }

    #[test]
    fn a_change_of_text_needs_no_tests() {
        assert_eq!(stages("book/src/tutorial.md"), ["book"]);
        assert_eq!(stages("book/src/reference/presets.md"), ["book", "unit"]);
        assert_eq!(stages("CONTRIBUTING.md"), [""; 0]);
        assert!(
            changes(&["book/src/reference/presets.md"])
                .packages
                .is_none()
        );
    }

    #[test]
    fn an_unknown_file_needs_everything() {
        for file in [
            "Cargo.lock",
            ".config/nextest.toml",
            "new/file",
            "xtask/src/main.rs",
        ] {
            let changes = changes(&["README.md", file]);
            assert!(
                changes.stages.is_none() && changes.packages.is_none(),
                "{file}"
            );
            assert!(changes.needs("loom"));
        }
    }

    #[test]
    fn a_commit_that_is_not_there_is_an_error() {
        let error = Changes::since(&workspace(), "no-such-commit").unwrap_err();
        assert!(error.to_string().starts_with("git diff: "), "{error}");
    }
}
