//! CPUs available to this process.

use std::{fs, io};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the calling thread may run on, ascending.
pub fn usable() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let is_set = |cpu: &usize| set.is_set(*cpu);
    let cpus = (0..CpuSet::MAX_CPU).filter(is_set);
    Ok(cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub fn pin(cpu: u32) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// As [`pin`], with an error that lists the usable CPUs.
pub fn pin_or_say(cpu: u32) -> anyhow::Result<()> {
    pin(cpu).with_context(|| {
        let usable = match usable() {
            Ok(cpus) => cpus
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            Err(error) => format!("unknown CPUs ({error})"),
        };
        format!("cannot run on CPU {cpu}; this process may use {usable}")
    })
}

/// Two usable CPUs for two busy threads, on different cores if possible. `None` if only one is
/// usable.
pub fn pair() -> io::Result<Option<(u32, u32)>> {
    match usable()?.first() {
        Some(&first) => Ok(apart(first)?.map(|second| (first, second))),
        None => Ok(None),
    }
}

/// A usable CPU other than `cpu`, on another core if possible.
pub fn apart(cpu: u32) -> io::Result<Option<u32>> {
    let mut others = usable()?;
    others.retain(|other| *other != cpu);
    let siblings = siblings(cpu);
    let apart = others.iter().find(|other| !siblings.contains(other));
    Ok(apart.or(others.first()).copied())
}

/// The CPUs that share a core with `cpu`; empty if the system does not report them.
fn siblings(cpu: u32) -> Vec<u32> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).map_or(Vec::new(), |text| list(&text))
}

/// A list of CPUs as the kernel writes it: `0-2,8`.
pub fn list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend((first..=last).take(CpuSet::MAX_CPU));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(list("5\n"), [5]);
        assert_eq!(list("\n"), [0; 0]);
        assert!(list("0-4294967295").len() <= CpuSet::MAX_CPU);
    }

    #[test]
    fn a_pair_is_two_of_the_usable_ones() {
        let usable = usable().unwrap();
        match pair().unwrap() {
            Some((a, b)) => assert!(a != b && usable.contains(&a) && usable.contains(&b)),
            None => assert_eq!(usable.len(), 1),
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin(u32::MAX).is_err());
    }
}
