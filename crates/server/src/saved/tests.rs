//! Files of programs with other defaults.

use api::config::from_toml;

use super::*;

/// Objects of a configuration with the controller `vm` and, if given, `more` of its subsystem.
fn objects(vm: &str, more: &str) -> Objects {
    let controller = |name: &str, keys: &str| match keys {
        "" => String::new(),
        keys => format!(
            "[[controller]]\nname = \"{name}\"\nsubsystem = \"s\"\nlisten = \"vfio-user:/{name}\"\n{keys}\n"
        ),
    };
    let text = controller("vm", vm) + &controller("more", more);
    Objects::of(&from_toml(&text).unwrap())
}

/// Keys of a controller with that firmware revision.
fn revision(revision: &str) -> String {
    format!("firmware_revision = \"{revision}\"")
}

/// The result of a start of version 2 with this file, after a run of version 1 with the objects of
/// the configuration `then`, and those at the end, `now`.
fn start(then: &Objects, now: &Objects, file: &Objects) -> Merged {
    let mut content = Content {
        version: VERSION,
        default_revision: "1".to_owned(),
        configuration: PathBuf::new(),
        then: then.clone(),
        now: now.clone(),
        unfinished: Unfinished::default(),
    };
    content.renew(file, "2");
    assert_eq!(content.default_revision, "2");
    merge(&content.then, &content.now, file)
}

#[test]
fn a_change_is_kept_when_only_the_default_revision_is_another_one() {
    let then = objects(&revision("1"), "");
    let now = objects(&(revision("1") + "\nsample = 16"), "");
    let merged = start(&then, &now, &objects(&revision("2"), ""));
    assert_eq!(merged.lost, [""; 0]);
    let expected = objects(&(revision("2") + "\nsample = 16"), "");
    assert_eq!(merged.objects, expected);
}

#[test]
fn a_revision_that_the_configuration_states_is_kept() {
    for stated in ["1", "7"] {
        let then = objects(&revision(stated), "");
        let now = objects(&(revision(stated) + "\nsample = 16"), "");
        let merged = start(&then, &now, &then);
        assert_eq!(merged.lost, [""; 0]);
        assert_eq!(merged.objects, now, "{stated}");
    }
}

/// Controllers of a subsystem must report the same revision.
#[test]
fn a_controller_made_at_run_time_follows_its_subsystem() {
    for stated in ["1", "2"] {
        let then = objects(&revision("1"), "");
        let now = objects(&revision("1"), &revision("1"));
        let merged = start(&then, &now, &objects(&revision(stated), ""));
        let expected = objects(&revision(stated), &revision(stated));
        assert_eq!(merged.objects, expected);
    }
    // alone, it has the new default
    let nothing = Objects::default();
    let merged = start(&nothing, &objects("", &revision("1")), &nothing);
    assert_eq!(merged.objects, objects("", &revision("2")));
}

#[test]
fn a_mode_of_a_mount_that_an_earlier_program_accepted_is_dropped() {
    let text = r#"{ "version": 1, "configuration": "/c.toml", "then": {}, "now": { "controller": [
        { "name": "a", "listen": "fuse:/m", "socket_mode": "0660" },
        { "name": "b", "listen": "vfio-user:/b", "socket_mode": "0660" } ] } }"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.json");
    std::fs::write(&path, text).unwrap();
    let content = read(&path).unwrap().unwrap();
    let modes = content.now.controller.iter().map(|c| c.socket_mode.bits());
    assert_eq!(modes.collect::<Vec<_>>(), [0o600, 0o660]);
}

#[test]
fn a_file_that_does_not_name_the_default_is_of_the_first_version() {
    let text = r#"{ "version": 1, "configuration": "/c.toml", "then": {}, "now": {} }"#;
    let content: Content = serde_json::from_str(text).unwrap();
    assert_eq!(content.default_revision, "0.1.0");
}
