//! The NUMA node of memory pages, and the preferred node for new ones.
//!
//! A processor reaches the memory of its own node faster than that of others. Querying and setting
//! a preference need no privilege and touch no page: pages that do not exist are not counted.
//!
//! Not included: moving pages, and the choice of the node to prefer.

use std::ptr::NonNull;
use std::{io, ptr};

use crate::own::PAGE;
use crate::own::map::OwnMap;

/// Most pages that are looked at in one call.
pub const MAX_SAMPLES: usize = 1024;
/// Nodes that the kernel can be built for (`CONFIG_NODES_SHIFT` is at most 10), as bits of words.
const NODE_WORDS: usize = 1024 / 64;

/// The nodes of up to [`MAX_SAMPLES`] pages, evenly spread over `len` bytes that are mapped at
/// `start`: how many lie on each, by node. Pages that this process has not touched are on none.
///
/// # Errors
/// The kernel's; most of all it knows no nodes.
pub(crate) fn nodes_of(start: NonNull<u8>, len: usize) -> io::Result<Vec<(u32, usize)>> {
    let pages = len.div_ceil(PAGE as usize);
    let count = pages.min(MAX_SAMPLES);
    let address = |sample: usize| {
        let page = (sample as u128 * pages as u128 / count as u128) as usize;
        start.as_ptr().wrapping_add(page * PAGE as usize)
    };
    let addresses: Vec<*mut u8> = (0..count).map(address).collect();
    let mut found = vec![-libc::ENOENT; count];
    // SAFETY: the kernel reads `count` addresses and writes `count` numbers, which is what the two
    // have; without a list of nodes nothing is moved, and addresses that are not mapped are an
    // error of theirs alone.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count,
            addresses.as_ptr(),
            ptr::null::<libc::c_int>(),
            found.as_mut_ptr(),
            0,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // An error of a page is a negative number; most of all it is not there.
    let mut nodes: Vec<u32> = found
        .into_iter()
        .filter_map(|node| node.try_into().ok())
        .collect();
    nodes.sort_unstable();
    let runs = nodes.chunk_by(|a, b| a == b);
    Ok(runs.map(|run| (run[0], run.len())).collect())
}

/// Has pages of `map` that are not there yet taken from `node`, as long as it has some.
///
/// # Errors
/// There is no such node, or the kernel knows none.
pub(crate) fn prefer(map: &OwnMap, node: u32) -> io::Result<()> {
    let mut nodes = [0u64; NODE_WORDS];
    let word = nodes.get_mut(node as usize / 64);
    *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % 64);
    // SAFETY: the range is the mapping, and the list of nodes has as many bits as is said (the
    // kernel takes one off). A policy changes no bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            map.at(0, map.len()),
            map.len(),
            libc::MPOL_PREFERRED,
            nodes.as_ptr(),
            NODE_WORDS * 64 + 1,
            0,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 * PAGE as usize;

    /// The nodes that this system has, by its own account.
    fn online() -> Vec<u32> {
        let text = std::fs::read_to_string("/sys/devices/system/node/online").unwrap();
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        };
        text.trim().split(',').flat_map(part).collect()
    }

    fn nodes(map: &OwnMap) -> Vec<(u32, usize)> {
        nodes_of(NonNull::new(map.at(0, map.len())).unwrap(), map.len()).unwrap()
    }

    #[test]
    fn pages_that_are_touched_lie_on_a_node_and_others_on_none() {
        let map = OwnMap::anonymous(LEN).unwrap();
        assert_eq!(nodes(&map), []);
        for page in [0, 5, 63] {
            // SAFETY: the byte lies inside the mapping, which is writable.
            unsafe { map.at(page * PAGE as usize, 1).write(1) };
        }
        let found = nodes(&map);
        assert_eq!(found.iter().map(|(_, pages)| pages).sum::<usize>(), 3);
        let online = online();
        assert!(found.iter().all(|(node, _)| online.contains(node)));
    }

    #[test]
    fn many_pages_are_sampled_from_the_first_to_the_last() {
        let pages = 3 * MAX_SAMPLES;
        let map = OwnMap::anonymous(pages * PAGE as usize).unwrap();
        for page in pages - 3..pages {
            // SAFETY: as above.
            unsafe { map.at(page * PAGE as usize, 1).write(1) };
        }
        let found: usize = nodes(&map).iter().map(|(_, pages)| pages).sum();
        assert_eq!(found, 1, "every third page is looked at");
    }

    #[test]
    fn a_wish_is_heard_and_one_for_a_node_that_is_not_there_is_not() {
        let map = OwnMap::anonymous(LEN).unwrap();
        let node = online()[0];
        prefer(&map, node).unwrap();
        // SAFETY: as above.
        unsafe { map.at(0, 1).write(1) };
        assert_eq!(nodes(&map), [(node, 1)]);
        assert!(prefer(&map, 1023).is_err());
        assert!(prefer(&map, u32::MAX).is_err());
    }
}
