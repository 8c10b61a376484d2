//! `nvmirage ls`: what a running server serves.

use super::parse::Control;
use crate::{
    config::Listen,
    control::{self, Inventory},
    report::{
        self,
        table::{Align, Table},
        units,
    },
};

const EXAMPLES: &str = "\
Examples:
  nvmirage ls
      Media, namespaces and controllers, and whether a host is attached
  nvmirage ls --json | jq '.controllers[] | select(.attached).name'
      The controllers in use";

/// Show what a running server serves
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Ls {
    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let inventory = control::client::inventory(&self.control.socket())?;
        if self.json {
            return report::print_json(&inventory);
        }
        report::print(&tables(&inventory))
    }
}

/// The three tables; of what there is none of, one line says so.
fn tables(inventory: &Inventory) -> String {
    let parts = [
        ("media", media(inventory)),
        ("namespaces", namespaces(inventory)),
        ("controllers", controllers(inventory)),
    ];
    let shown = parts.map(|(name, table)| {
        if table.is_empty() {
            format!("no {name}\n")
        } else {
            table.to_string()
        }
    });
    shown.join("\n")
}

fn media(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("media", Align::Left),
        ("size", Align::Right),
        ("kind", Align::Left),
    ]);
    for medium in &inventory.media {
        table.row(vec![
            medium.config.name.clone(),
            units::bytes(medium.bytes),
            medium.description.clone(),
        ]);
    }
    table
}

fn namespaces(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("namespace", Align::Left),
        ("media", Align::Left),
        ("size", Align::Right),
        ("blocks", Align::Right),
        ("block", Align::Right),
        ("controller", Align::Left),
    ]);
    for namespace in &inventory.namespaces {
        let lba_size = namespace.config.lba_size;
        table.row(vec![
            namespace.config.name.clone(),
            namespace.config.media.clone(),
            units::bytes(namespace.blocks.saturating_mul(lba_size.into())),
            namespace.blocks.to_string(),
            units::block(lba_size),
            namespace.controller.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

fn controllers(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("namespaces", Align::Left),
        ("host", Align::Left),
        ("listen", Align::Left),
    ]);
    for controller in &inventory.controllers {
        let config = &controller.config;
        let listen: &Listen = &config.listen;
        let namespaces = match config.namespaces.as_slice() {
            [] => "-".to_owned(),
            names => names.join(","),
        };
        let host = if controller.attached { "attached" } else { "-" };
        table.row(vec![
            config.name.clone(),
            namespaces,
            host.into(),
            listen.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_server_says_so() {
        let text = tables(&Inventory::default());
        assert_eq!(text, "no media\n\nno namespaces\n\nno controllers\n");
    }

    #[test]
    fn what_is_served_is_in_the_tables() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[{"name":"disk","kind":"ram","size":"8GiB","bytes":8589934592,"description":"ram, memory"}],
                "namespaces":[{"name":"root","media":"disk","lba_size":4096,"blocks":2097152,"controller":"vm1"}],
                "controllers":[{"name":"vm1","namespaces":["root"],"listen":"vfio-user:/a/b","attached":true}]}"#,
        )
        .unwrap();
        let text = tables(&inventory);
        let row = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("disk"), ["disk", "8.00", "GiB", "ram,", "memory"]);
        assert_eq!(
            row("root"),
            ["root", "disk", "8.00", "GiB", "2097152", "4", "KiB", "vm1"]
        );
        assert_eq!(row("vm1"), ["vm1", "root", "attached", "vfio-user:/a/b"]);
    }
}
