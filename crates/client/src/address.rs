//! Which server a command talks to.
//!
//! `--control` takes precedence over `NVMIRAGE_CONTROL`, and that over the default: the user's own
//! server. Commands that only read fall back to the system's server where the user has none.
//! Commands that change something never fall back: they could change the wrong server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use api::config::Listen;

/// The environment variable that names a control socket.
const VARIABLE: &str = "NVMIRAGE_CONTROL";
/// The control socket of the system's service.
const SERVICE: &str = "/run/nvmirage/control.sock";

/// Source of a control socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// `--control`.
    Option,
    /// [`VARIABLE`].
    Environment,
    /// Default: the user's own server.
    User,
    /// Default without `XDG_RUNTIME_DIR`, where a user has no server of its own: the system's
    /// server.
    System,
    /// Fallback: the user's own socket is missing, and the system's exists.
    Fallback,
}

/// A control socket, and the source of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    path: PathBuf,
    origin: Origin,
}

/// Whether a command changes a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It only reads.
    Read,
    /// It changes something.
    Change,
}

/// Inputs of the choice, beside the command line.
#[derive(Clone, Debug)]
struct Surroundings<'a> {
    variable: Option<OsString>,
    runtime_dir: Option<OsString>,
    service: &'a Path,
}

impl Surroundings<'_> {
    fn of_process() -> Surroundings<'static> {
        Surroundings {
            variable: std::env::var_os(VARIABLE),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
            service: Path::new(SERVICE),
        }
    }

    /// The value of [`VARIABLE`]. Empty counts as unset.
    fn named(&self) -> Result<Option<PathBuf>, String> {
        let Some(text) = self.variable.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let wrong = |why: &str| format!("{VARIABLE}={}: {why}", text.display());
        let text = text.to_str().ok_or_else(|| wrong("it is not UTF-8"))?;
        match text.parse::<Listen>() {
            Ok(Listen::Unix(path)) => Ok(Some(path)),
            Ok(_) => Err(wrong(
                "that is the address of a controller: write unix:PATH, the control socket of its server",
            )),
            Err(why) => Err(wrong(&why)),
        }
    }

    fn default(&self) -> Address {
        let dir = self.runtime_dir.as_ref().map(PathBuf::from);
        match dir.filter(|dir| dir.is_absolute()) {
            Some(dir) => Address {
                path: dir.join("nvmirage/control.sock"),
                origin: Origin::User,
            },
            None => Address {
                path: self.service.to_owned(),
                origin: Origin::System,
            },
        }
    }

    fn find(&self, option: Option<PathBuf>, intent: Intent) -> Result<Address, String> {
        let named = |path, origin| Ok(Address { path, origin });
        if let Some(path) = option {
            return named(path, Origin::Option);
        }
        if let Some(path) = self.named()? {
            return named(path, Origin::Environment);
        }
        let default = self.default();
        let falls_back = intent == Intent::Read
            && default.origin == Origin::User
            && !default.path.exists()
            && self.service.exists();
        if falls_back {
            named(self.service.to_owned(), Origin::Fallback)
        } else {
            Ok(default)
        }
    }
}

impl Address {
    /// The server for a command, given the value of `--control`.
    ///
    /// # Errors
    /// [`VARIABLE`] is not a valid address.
    pub fn find(option: Option<PathBuf>, intent: Intent) -> Result<Self, String> {
        Surroundings::of_process().find(option, intent)
    }

    /// The control socket of a server that is configured without one.
    pub fn default_of_server() -> PathBuf {
        Surroundings::of_process().default().path
    }

    /// The path in the environment.
    ///
    /// # Errors
    /// [`VARIABLE`] is not a valid address.
    pub fn of_environment() -> Result<Option<PathBuf>, String> {
        Surroundings::of_process().named()
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the user named it, by option or environment.
    pub fn is_named(&self) -> bool {
        matches!(self.origin, Origin::Option | Origin::Environment)
    }

    /// A line that names the server, where the command line does not: for commands that change
    /// something, and for fallbacks.
    pub fn note(&self, intent: Intent) -> Option<String> {
        let path = self.path.display();
        match (self.origin, intent) {
            (Origin::Environment, Intent::Change) => {
                Some(format!("server: {path}, which {VARIABLE} names"))
            }
            (Origin::System, Intent::Change) => Some(format!("server: {path}, the system's")),
            (Origin::Fallback, _) => Some(format!(
                "server: {path}, the system's, as this user has none of its own"
            )),
            _ => None,
        }
    }

    /// The error for a socket where no server answers, with the next step.
    pub fn nobody(&self) -> String {
        let hint = match self.origin {
            Origin::User if Path::new(SERVICE).exists() => format!(
                "; the system's server is changed where you name it, with --control unix:{SERVICE}"
            ),
            _ => String::new(),
        };
        format!(
            "no server at {self}: start `nvmirage serve`, or name its socket with --control or {VARIABLE}{hint}"
        )
    }
}

/// The path with its source.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Option => "--control",
            Origin::Environment => VARIABLE,
            Origin::User => "the default",
            Origin::System => "the default without XDG_RUNTIME_DIR",
            Origin::Fallback => "the system's",
        };
        write!(f, "{} ({origin})", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which the user's folder and the service's socket exist or not.
    struct Machine {
        dir: tempfile::TempDir,
    }

    impl Machine {
        fn new(own: bool, service: bool) -> Self {
            let machine = Machine {
                dir: tempfile::tempdir().unwrap(),
            };
            std::fs::create_dir(machine.dir.path().join("nvmirage")).unwrap();
            for (path, is_there) in [(machine.own(), own), (machine.service(), service)] {
                if is_there {
                    std::fs::write(path, "").unwrap();
                }
            }
            machine
        }

        fn own(&self) -> PathBuf {
            self.dir.path().join("nvmirage/control.sock")
        }

        fn service(&self) -> PathBuf {
            self.dir.path().join("service")
        }

        fn find(
            &self,
            option: Option<&str>,
            variable: Option<&str>,
            intent: Intent,
        ) -> Result<Address, String> {
            let surroundings = Surroundings {
                variable: variable.map(OsString::from),
                runtime_dir: Some(self.dir.path().into()),
                service: &self.service(),
            };
            surroundings.find(option.map(PathBuf::from), intent)
        }
    }

    #[test]
    fn the_option_counts_before_the_environment_and_that_before_the_default() {
        let machine = Machine::new(true, true);
        for intent in [Intent::Read, Intent::Change] {
            let found = |option, variable| machine.find(option, variable, intent).unwrap();
            let both = found(Some("/a"), Some("unix:/b"));
            assert_eq!(
                (both.path(), both.origin),
                (Path::new("/a"), Origin::Option)
            );
            assert!(both.is_named());
            let one = found(None, Some("unix:/b"));
            assert_eq!(
                (one.path(), one.origin),
                (Path::new("/b"), Origin::Environment)
            );
            for variable in [None, Some("")] {
                let none = found(None, variable);
                assert_eq!(none.path(), machine.own());
                assert_eq!(none.origin, Origin::User);
                assert!(!none.is_named());
                assert_eq!(none.note(intent), None);
            }
        }
    }

    #[test]
    fn what_changes_something_never_goes_to_the_server_of_the_system() {
        let machine = Machine::new(false, true);
        let change = machine.find(None, None, Intent::Change).unwrap();
        assert_eq!(change.path(), machine.own());
        assert_eq!(change.origin, Origin::User);
        let read = machine.find(None, None, Intent::Read).unwrap();
        assert_eq!(read.path(), machine.service());
        assert_eq!(read.origin, Origin::Fallback);
        let note = read.note(Intent::Read).unwrap();
        assert!(note.contains("the system's"), "{note}");
        // without the system's socket there is no fallback
        let alone = Machine::new(false, false);
        let read = alone.find(None, None, Intent::Read).unwrap();
        assert_eq!(read.path(), alone.own());
    }

    #[test]
    fn without_a_folder_of_the_user_the_default_is_the_system_and_that_is_told() {
        let surroundings = Surroundings {
            variable: None,
            runtime_dir: Some("relative".into()),
            service: Path::new("/s"),
        };
        let found = surroundings.find(None, Intent::Change).unwrap();
        assert_eq!(
            (found.path(), found.origin),
            (Path::new("/s"), Origin::System)
        );
        assert!(found.note(Intent::Change).unwrap().contains("/s"));
        assert_eq!(found.note(Intent::Read), None);
    }

    #[test]
    fn errors_say_where_an_address_came_from() {
        let machine = Machine::new(true, false);
        for (variable, why) in [
            ("/a", "has no scheme"),
            ("vfio-user:/a", "write unix:PATH"),
            ("unix:", ""),
        ] {
            let error = machine
                .find(None, Some(variable), Intent::Read)
                .unwrap_err();
            assert!(error.starts_with("NVMIRAGE_CONTROL="), "{error}");
            assert!(error.contains(why), "{error}");
        }
        let named = machine.find(None, Some("unix:/b"), Intent::Change).unwrap();
        assert!(named.nobody().contains("/b (NVMIRAGE_CONTROL)"));
        assert_eq!(
            named.note(Intent::Change).unwrap(),
            "server: /b, which NVMIRAGE_CONTROL names"
        );
        assert_eq!(named.note(Intent::Read), None);
        let option = machine.find(Some("/c"), None, Intent::Change).unwrap();
        assert!(option.nobody().contains("/c (--control)"));
    }
}
