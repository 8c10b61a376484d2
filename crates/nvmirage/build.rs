//! Builds the dashboard of `web/` and has the program embed it.
//!
//! It is built where Node.js and npm are there and what it is made of can be fetched or lies in npm's cache, once for each state of
//! `web/`: the result is kept in `target/web` for all profiles. Elsewhere the program embeds a page that says how to build with it,
//! and the build goes on. `NVMIRAGE_WEB` says otherwise: `0` for that page, `1` for a dashboard or a failed build, and anything else is a
//! folder with one that is built already.
//!
//! Written are `target/web`, `web/node_modules` and the folder that cargo gives.

use std::{
    env,
    error::Error,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long npm or Vite may take.
const BOUND: Duration = Duration::from_secs(240);
/// What the dashboard is made of, beside what npm fetches.
const SOURCES: [&str; 6] = [
    "index.html",
    "package-lock.json",
    "package.json",
    "src",
    "tsconfig.json",
    "vite.config.ts",
];
/// In `node_modules`: the lock file that it was made from.
const STAMP: &str = ".nvmirage-lock.json";

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let crate_folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let web = crate_folder.join("../../web");
    // OUT_DIR is target/PROFILE/build/PACKAGE/out
    let target = out.ancestors().nth(4).ok_or("OUT_DIR has no target")?;
    let kept = target.join("web");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=NVMIRAGE_WEB");
    let asked = env::var("NVMIRAGE_WEB")
        .ok()
        .filter(|text| !text.is_empty());
    let built = match asked.as_deref() {
        Some("0") => None,
        Some("1") => Some(build(&web, &kept)?),
        Some(folder) => {
            println!("cargo::rerun-if-changed={folder}");
            Some(PathBuf::from(folder))
        }
        None => match build(&web, &kept) {
            Ok(dist) => Some(dist),
            Err(error) => {
                println!("cargo::warning=without the dashboard: {error}");
                // somebody may put one there, or what it needs
                fs::create_dir_all(&kept)?;
                println!("cargo::rerun-if-changed={}", kept.display());
                None
            }
        },
    };
    embed(built.as_deref(), &out)
}

/// The folder with the dashboard of what `web` is now.
fn build(web: &Path, kept: &Path) -> Result<PathBuf> {
    for name in SOURCES {
        println!("cargo::rerun-if-changed={}", web.join(name).display());
    }
    let mut hasher = DefaultHasher::new();
    for name in SOURCES {
        hash(&web.join(name), name, &mut hasher)?;
    }
    let dist = kept.join(format!("{:016x}", hasher.finish()));
    if dist.join("index.html").is_file() {
        return Ok(dist);
    }
    fs::create_dir_all(kept)?;
    // two profiles may build at once
    let mut options = fs::File::options();
    let lock = options.create(true).append(true).open(kept.join("lock"))?;
    lock.lock()?;
    if dist.join("index.html").is_file() {
        return Ok(dist);
    }
    install(web)?;
    let fresh = kept.join("new");
    let _ = fs::remove_dir_all(&fresh);
    let mut vite = Command::new("node");
    vite.args(["node_modules/vite/bin/vite.js", "build", "--outDir"])
        .arg(fs::canonicalize(kept)?.join("new"))
        .current_dir(web);
    run(&mut vite, "Vite")?;
    for entry in fs::read_dir(kept)? {
        let path = entry?.path();
        // those of other states of `web`
        if path.is_dir() && path != fresh {
            fs::remove_dir_all(path)?;
        }
    }
    fs::rename(&fresh, &dist)?;
    Ok(dist)
}

/// Has npm fetch what the lock file names, unless that is there.
fn install(web: &Path) -> Result<()> {
    let lock = fs::read(web.join("package-lock.json"))?;
    let stamp = web.join("node_modules").join(STAMP);
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--prefer-offline", "--no-audit"])
        .args(["--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"])
        .current_dir(web);
    run(&mut npm, "npm")?;
    Ok(fs::write(stamp, lock)?)
}

/// Runs a program whose output is of interest where it fails.
fn run(command: &mut Command, name: &str) -> Result<()> {
    let log = PathBuf::from(env::var("OUT_DIR")?).join("web.log");
    let output = fs::File::create(&log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn();
    let mut child = child.map_err(|error| format!("{name} cannot be run: {error}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > BOUND {
            child.kill()?;
            child.wait()?;
            return Err(format!("{name} did not end within {} s", BOUND.as_secs()).into());
        }
        thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = said[said.len().saturating_sub(4)..].join("; ");
    Err(format!("{name} failed ({status}): {last}").into())
}

/// Adds the names and contents of what lies at `path`.
fn hash(path: &Path, name: &str, hasher: &mut impl Hasher) -> Result<()> {
    name.hash(hasher);
    if path.is_dir() {
        for (name, path) in sorted(path)? {
            hash(&path, &name, hasher)?;
        }
    } else {
        let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        content.hash(hasher);
    }
    Ok(())
}

fn sorted(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        ));
    }
    found.sort();
    Ok(found)
}

/// Writes the table that the program includes.
fn embed(dist: Option<&Path>, out: &Path) -> Result<()> {
    let mut rows = String::new();
    if let Some(dist) = dist {
        let copy = out.join("web");
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir_all(copy.join("assets"))?;
        let page = (String::from("index.html"), dist.join("index.html"));
        let assets = sorted(&dist.join("assets"))?.into_iter();
        let assets = assets.map(|(name, path)| (format!("assets/{name}"), path));
        for (name, path) in std::iter::once(page).chain(assets) {
            fs::copy(&path, copy.join(&name))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let file = copy.join(&name);
            rows += &format!("    ({name:?}, include_bytes!({file:?})),\n");
        }
    }
    let table = format!("pub(super) static FILES: &[(&str, &[u8])] = &[\n{rows}];\n");
    Ok(fs::write(out.join("dashboard.rs"), table)?)
}
