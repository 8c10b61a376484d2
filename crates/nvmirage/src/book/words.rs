//! Consistent names: options of `create`, keys of the configuration and keys of requests are the
//! same.

use std::collections::BTreeSet;

use super::keys::{properties, schemas};
use super::options::{arguments, command_line};

/// Objects of `create`, and their types.
const KINDS: [(&str, &str); 4] = [
    ("media", "Medium"),
    ("namespace", "Namespace"),
    ("tenant", "Tenant"),
    ("controller", "Controller"),
];

/// Keys that are tables, and the types of those: options are the keys of a table.
const TABLES: [(&str, &str, &str); 4] = [
    ("Controller", "fuse", "Fuse"),
    ("Controller", "tcp", "Tcp"),
    ("Controller", "nbd", "Nbd"),
    ("Medium", "zoned", "Zoned"),
];

#[test]
fn what_is_created_has_the_keys_of_the_configuration() {
    let schemas = schemas();
    let line = command_line();
    let create = line.find_subcommand("create").unwrap();
    for (kind, name) in KINDS {
        let command = create.find_subcommand(kind).unwrap();
        let options: BTreeSet<String> = arguments(command)
            .map(|arg| arg.get_long().unwrap_or("name").replace('-', "_"))
            .filter(|option| option != "control")
            .collect();
        let mut keys: BTreeSet<String> = properties(&schemas, name).keys().cloned().collect();
        for (_, key, of_table) in TABLES.iter().filter(|(of, _, _)| *of == name) {
            assert!(keys.remove(*key), "{name} has no table {key}");
            keys.extend(properties(&schemas, of_table).keys().cloned());
        }
        assert_eq!(
            options, keys,
            "options of create {kind}, and keys of {name}"
        );
    }
}

#[test]
fn every_kind_has_the_same_verbs() {
    let line = command_line();
    for verb in ["create", "delete"] {
        let command = line.find_subcommand(verb).unwrap();
        for (kind, _) in KINDS {
            assert!(command.find_subcommand(kind).is_some(), "{verb} {kind}");
        }
    }
}
