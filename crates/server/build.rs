//! Builds the dashboard of `web/` and has the program embed it.
//!
//! It is built where Node.js and npm are there and what it is made of can be fetched or lies in
//! npm's cache, once for each state of `web/`: the result is kept in `target/web` for all profiles.
//! Elsewhere the program embeds a page that says how to build with it, and the build goes on.
//! `NVMIRAGE_WEB` says otherwise: `0` for that page, `1` for a dashboard or a failed build, and
//! anything else is a folder with one that is built already. Where cargo is offline
//! (`CARGO_NET_OFFLINE`), so is npm.
//!
//! Written are `target/web`, `web/node_modules`, its lock beside it, and the folder that cargo
//! gives.

#[path = "build_npm.rs"]
mod npm;

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sources of the dashboard, beside the packages that npm fetches.
const SOURCES: [&str; 6] = [
    "index.html",
    "package-lock.json",
    "package.json",
    "src",
    "tsconfig.json",
    "vite.config.ts",
];

/// A folder with the dashboard.
struct Built {
    folder: PathBuf,
    /// No other build replaces it until it is embedded.
    _lock: Option<fs::File>,
}

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let crate_folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let web = crate_folder.join("../../web");
    // OUT_DIR is target/PROFILE/build/PACKAGE/out
    let target = out.ancestors().nth(4).ok_or("OUT_DIR has no target")?;
    let kept = target.join("web");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build_npm.rs");
    println!("cargo::rerun-if-env-changed=NVMIRAGE_WEB");
    let asked = env::var("NVMIRAGE_WEB")
        .ok()
        .filter(|text| !text.is_empty());
    let built = match asked.as_deref() {
        Some("0") => None,
        Some("1") => Some(build(&web, &kept).map_err(|error| error.to_string())?),
        Some(folder) => {
            println!("cargo::rerun-if-changed={folder}");
            Some(Built {
                folder: folder.into(),
                _lock: None,
            })
        }
        None => match build(&web, &kept) {
            Ok(built) => Some(built),
            Err(error) => {
                warn(&error.to_string());
                // somebody may put one there, or what it needs
                fs::create_dir_all(&kept)?;
                println!("cargo::rerun-if-changed={}", kept.display());
                println!("cargo::rerun-if-env-changed=CARGO_NET_OFFLINE");
                None
            }
        },
    };
    let folder = built.as_ref().map(|built| built.folder.as_path());
    embed(folder, &out)
}

/// Says on one line, as cargo takes no more, why there is no dashboard, and what to do about it.
fn warn(why: &str) {
    let why = why.replace('\n', "; ");
    println!(
        "cargo::warning=the program is built without its dashboard, and has everything else: {why}. To have it, run `cargo xtask setup`, \
         which fetches what it needs, and build again. NVMIRAGE_WEB=0 leaves it out without this warning"
    );
}

/// The folder with the dashboard of what `web` is now.
fn build(web: &Path, kept: &Path) -> Result<Built> {
    for name in SOURCES {
        println!("cargo::rerun-if-changed={}", web.join(name).display());
    }
    let mut hasher = DefaultHasher::new();
    for name in SOURCES {
        hash(&web.join(name), name, &mut hasher)?;
    }
    let dist = kept.join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(kept)?;
    // two profiles may build at once, and the second removes what it does not need
    let lock = npm::lock(&kept.join("lock"), npm::LOCK_BOUND)?;
    let built = Built {
        folder: dist.clone(),
        _lock: Some(lock),
    };
    if dist.join("index.html").is_file() {
        return Ok(built);
    }
    npm::check_node()?;
    let log = PathBuf::from(env::var("OUT_DIR")?).join("web.log");
    // builds into other folders, and `cargo xtask`, have the same
    let _installed = npm::lock(&web.join(npm::LOCK), npm::LOCK_BOUND)?;
    if !npm::is_installed(web)? {
        // a build that can go on without it does not wait long for a network that may not be there
        npm::install(web, 0, &log)?;
    }
    let fresh = kept.join("new");
    let _ = fs::remove_dir_all(&fresh);
    let mut vite = Command::new("node");
    vite.args(["node_modules/vite/bin/vite.js", "build", "--outDir"])
        .arg(fs::canonicalize(kept)?.join("new"))
        .current_dir(web);
    npm::run(&mut vite, "Vite", npm::BOUND, &log)?;
    for entry in fs::read_dir(kept)? {
        let path = entry?.path();
        // those of other states of `web`
        if path.is_dir() && path != fresh {
            fs::remove_dir_all(path)?;
        }
    }
    fs::rename(&fresh, &dist)?;
    Ok(built)
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
