//! Index of a configuration: its objects by name, and what uses them. The validation looks objects
//! up here; a search for each of them would take time in proportion to the square of their number.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;

use super::{Config, Controller, Listen, Medium, Namespace};

/// Lists are in the order of the configuration. Where several objects have a name, the first is
/// found.
pub(super) struct Index<'a> {
    pub(super) config: &'a Config,
    media: HashMap<&'a str, &'a Medium>,
    namespaces: HashMap<&'a str, &'a Namespace>,
    on_medium: HashMap<&'a str, Vec<&'a Namespace>>,
    of_subsystem: HashMap<&'a str, Vec<&'a Controller>>,
    with_namespace: HashMap<&'a str, Vec<&'a Controller>>,
    with_pool: HashMap<&'a str, Vec<&'a Controller>>,
    at: HashMap<&'a Listen, Vec<&'a Controller>>,
    at_port: HashMap<u16, Vec<&'a Controller>>,
    at_socket: HashMap<&'a Path, Vec<&'a Controller>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        let controllers = || config.controller.iter();
        let with = |names: fn(&Controller) -> &Vec<String>| {
            let all =
                controllers().flat_map(move |c| names(c).iter().map(move |n| (n.as_str(), c)));
            grouped(all)
        };
        // Backwards, so that the first one of a name stays.
        let media = config.media.iter().rev();
        let namespaces = config.namespace.iter().rev();
        Self {
            config,
            media: media.map(|m| (m.name.as_str(), m)).collect(),
            namespaces: namespaces.map(|n| (n.name.as_str(), n)).collect(),
            on_medium: grouped(config.namespace.iter().map(|n| (n.media.as_str(), n))),
            of_subsystem: grouped(controllers().map(|c| (c.subsystem(), c))),
            with_namespace: with(|c| &c.namespaces),
            with_pool: with(|c| &c.pool),
            at: grouped(controllers().map(|c| (&c.listen, c))),
            at_port: grouped(controllers().filter_map(|c| Some((c.listen.tcp()?.port(), c)))),
            at_socket: grouped(controllers().filter_map(|c| Some((c.listen.socket()?, c)))),
        }
    }

    pub(super) fn medium(&self, name: &str) -> Option<&'a Medium> {
        self.media.get(name).copied()
    }

    pub(super) fn namespace(&self, name: &str) -> Option<&'a Namespace> {
        self.namespaces.get(name).copied()
    }

    /// The namespaces on a medium.
    pub(super) fn on_medium(&self, medium: &str) -> &[&'a Namespace] {
        listed(&self.on_medium, medium)
    }

    /// The controllers of a subsystem.
    pub(super) fn of_subsystem(&self, subsystem: &str) -> &[&'a Controller] {
        listed(&self.of_subsystem, subsystem)
    }

    /// The controllers that name a namespace.
    pub(super) fn with_namespace(&self, namespace: &str) -> &[&'a Controller] {
        listed(&self.with_namespace, namespace)
    }

    /// The controllers that have a medium in their pool.
    pub(super) fn with_pool(&self, medium: &str) -> &[&'a Controller] {
        listed(&self.with_pool, medium)
    }

    /// The controllers at an address.
    pub(super) fn at(&self, listen: &Listen) -> &[&'a Controller] {
        self.at.get(listen).map_or(&[], Vec::as_slice)
    }

    /// The controllers at the TCP port, or the UNIX socket, of an address.
    pub(super) fn beside(&self, listen: &Listen) -> &[&'a Controller] {
        let at_port = listen.tcp().and_then(|at| self.at_port.get(&at.port()));
        let at_socket = listen.socket().and_then(|path| self.at_socket.get(path));
        at_port.or(at_socket).map_or(&[], Vec::as_slice)
    }

    /// The namespaces of a subsystem in the order of their identifiers: those that its controllers
    /// name, then those on its pool.
    pub(super) fn namespaces_of(&self, subsystem: &str) -> Vec<&'a Namespace> {
        let controllers = self.of_subsystem(subsystem);
        let named = controllers.iter().flat_map(|c| &c.namespaces);
        let named = named.filter_map(|name| self.namespace(name));
        let pool: HashSet<&String> = controllers.iter().flat_map(|c| &c.pool).collect();
        let all = if pool.is_empty() {
            &[][..]
        } else {
            &self.config.namespace[..]
        };
        let in_pool = all.iter().filter(|n| pool.contains(&n.media));
        let mut seen = HashSet::new();
        named
            .chain(in_pool)
            .filter(|n| seen.insert(n.name.as_str()))
            .collect()
    }
}

/// The members of a list that come before one of them.
pub(super) fn before<'s, 'a, T>(all: &'s [&'a T], this: &'s T) -> impl Iterator<Item = &'a T> + 's {
    all.iter()
        .copied()
        .take_while(move |one| !std::ptr::eq(*one, this))
}

fn grouped<K: Eq + Hash, V>(all: impl Iterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut groups: HashMap<K, Vec<V>> = HashMap::new();
    for (key, value) in all {
        groups.entry(key).or_default().push(value);
    }
    groups
}

fn listed<'s, V>(groups: &'s HashMap<&str, Vec<V>>, key: &str) -> &'s [V] {
    groups.get(key).map_or(&[], Vec::as_slice)
}
