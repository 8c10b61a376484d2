//! Shares of tenants in media, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test ends where its host fails")]

mod world;

use engine::tenants::{Cap, Class, TenantSpec};
use world::{Asked, Load, SECOND, WRITE, World, preset};

const GIB: u64 = 1 << 30;
const OPTANE: &str = "optane-p4800x";
const FLASH: &str = "samsung-970-pro";
/// Commands that the Optane does in a second, of 4 KiB: as published.
const OPTANE_RATE: u64 = 550_000;

fn weight(weight: u32) -> TenantSpec {
    TenantSpec {
        weight,
        ..TenantSpec::default()
    }
}

fn latency() -> TenantSpec {
    TenantSpec {
        class: Class::Latency { goal_ns: None },
        ..TenantSpec::default()
    }
}

fn size_of(drive: &str) -> u64 {
    // The least of which the flash can be made.
    if drive == FLASH { 5 * GIB } else { GIB }
}

/// A host each, with this load.
fn hosts(drive: &str, loads: &[Load]) -> World {
    let asked = loads.iter().map(|load| Asked::from(*load));
    let size = size_of(drive);
    World::new(Some(preset(drive, size)), size, asked.collect())
}

/// Tenants of these weights, a host each, with this load.
fn tenants(drive: &str, all: &[(u32, Load)]) -> World {
    let loads: Vec<Load> = all.iter().map(|(_, load)| *load).collect();
    let mut world = hosts(drive, &loads);
    for (number, (part, _)) in all.iter().enumerate() {
        world.tenant(number, number as u16, weight(*part));
    }
    world
}

/// That 1:3 is kept within 5 %.
fn assert_one_to_three(one: u64, three: u64) {
    let exact = 3 * one;
    assert!(
        three.abs_diff(exact) * 20 <= exact,
        "{one} and {three} are not 1:3"
    );
}

#[test]
fn weights_are_kept_over_every_second() {
    for (drive, bytes) in [
        (OPTANE, 4096),
        (OPTANE, 131_072),
        (FLASH, 4096),
        (FLASH, 131_072),
    ] {
        let load = Load::reads(bytes, 128);
        let mut world = tenants(drive, &[(100, load), (300, load)]);
        world.run(2 * SECOND);
        for second in 0..2 {
            let (from, until) = (second * SECOND, (second + 1) * SECOND);
            let [one, three] = [0, 1].map(|host| world.count(host, 0, from, until));
            assert_one_to_three(one, three);
        }
    }
}

#[test]
fn weights_count_cost_and_not_commands() {
    // One sends few large commands, the other many small ones.
    let large = Load::reads(131_072, 64);
    let small = Load::reads(4096, 128);
    let mut world = tenants(OPTANE, &[(100, large), (100, small)]);
    world.run(SECOND);
    let cost = |host, bytes: u64| world.count(host, 0, 0, SECOND) * (4096 + bytes);
    let (of_large, of_small) = (cost(0, 131_072), cost(1, 4096));
    assert!(
        of_large.abs_diff(of_small) * 20 <= of_small,
        "{of_large} and {of_small}"
    );
}

#[test]
fn two_tenants_reach_what_the_drive_can() {
    for depth in [16, 128] {
        let load = Load::reads(4096, depth);
        let mut world = tenants(OPTANE, &[(100, load), (100, load)]);
        world.run(SECOND);
        let both: u64 = (0..2).map(|host| world.count(host, 0, 0, SECOND)).sum();
        assert!(both >= OPTANE_RATE * 99 / 100, "{both} at depth {depth}");
    }
}

#[test]
fn a_tenant_alone_or_beside_idle_ones_has_all_of_the_drive() {
    let mut alone = hosts(FLASH, &[Load::reads(4096, 128)]);
    alone.run(SECOND / 2);
    let before = alone.count(0, 0, 0, SECOND / 2);
    let mut idle = Load::reads(4096, 1);
    idle.until = 1;
    let mut world = tenants(FLASH, &[(1, Load::reads(4096, 128)), (1000, idle)]);
    world.run(SECOND / 2);
    let after = world.count(0, 0, 0, SECOND / 2);
    assert!(after * 100 >= before * 99, "{before} and {after}");
}

#[test]
fn a_latency_tenant_is_no_slower_than_twice_alone() {
    for drive in [OPTANE, FLASH] {
        let one = Load::reads(4096, 1);
        let mut alone = hosts(drive, &[one]);
        alone.run(SECOND);
        let before = alone.percentile(0, 0, 990);
        let mut beside = tenants(drive, &[(100, one), (100, Load::reads(4096, 128))]);
        beside.tenant(0, 0, latency());
        beside.run(2 * SECOND);
        let after = beside.percentile(0, 0, 990);
        assert!(after <= 2 * before, "{drive}: {before} ns and {after} ns");
        // The other one goes on.
        for second in 0..2 {
            let count = beside.count(1, 0, second * SECOND, (second + 1) * SECOND);
            assert!(count > 10_000, "{drive}: {count}");
        }
    }
}

#[test]
fn a_latency_tenant_that_wants_everything_gets_its_part() {
    let load = Load::reads(4096, 128);
    let mut world = tenants(OPTANE, &[(100, load), (100, load)]);
    world.tenant(0, 0, latency());
    world.run(2 * SECOND);
    let [first, other] = [0, 1].map(|host| world.count(host, 0, SECOND, 2 * SECOND));
    assert!(other * 100 >= first * 90, "{first} and {other}");
}

#[test]
fn caps_are_kept_and_bursts_are_as_they_were_given() {
    let load = Load::reads(4096, 64);
    for rate in [1_000, 77_777, 300_000] {
        let mut world = tenants(OPTANE, &[(100, load), (100, load)]);
        let cap = Cap {
            per_second: rate,
            burst: 500,
        };
        world.change(0, weight(100), Some(cap), None);
        world.run(2 * SECOND);
        for second in 0..2 {
            let burst = if second == 0 { 500 } else { 0 };
            let count = world.count(0, 0, second * SECOND, (second + 1) * SECOND);
            let most = (rate + burst).min(OPTANE_RATE / 2);
            assert!(count.abs_diff(most) * 50 <= most, "{count} of {most}");
        }
        // The other one has the rest.
        let both: u64 = (0..2).map(|host| world.count(host, 0, 0, SECOND)).sum();
        assert!(both >= OPTANE_RATE * 98 / 100, "{both} at {rate}");
    }
}

#[test]
fn a_burst_comes_at_once() {
    let mut world = tenants(OPTANE, &[(100, Load::reads(4096, 256))]);
    let cap = Cap {
        per_second: 100,
        burst: 40,
    };
    world.change(0, weight(100), Some(cap), None);
    world.run(5_000_000);
    assert_eq!(world.count(0, 0, 0, 5_000_000), 40);
}

#[test]
fn bandwidth_is_capped_whatever_the_size_of_commands() {
    for (bytes, depth) in [(4096, 64), (131_072, 8), (1 << 20, 2)] {
        let mut world = tenants(OPTANE, &[(100, Load::reads(bytes, depth))]);
        let cap = Cap {
            per_second: 200_000_000,
            burst: 1 << 20,
        };
        world.change(0, weight(100), None, Some(cap));
        world.run(3 * SECOND);
        let moved = world.count(0, 0, SECOND, 3 * SECOND) * u64::from(bytes);
        let exact = 2 * 200_000_000_u64;
        assert!(moved.abs_diff(exact) * 50 <= exact, "{moved} of {exact}");
    }
}

#[test]
fn everything_changes_while_it_runs() {
    let load = Load::reads(4096, 128);
    let mut world = tenants(OPTANE, &[(100, load), (100, load)]);
    let half = SECOND / 2;
    world.run(half);
    let [one, other] = [0, 1].map(|host| world.count(host, 0, 0, half));
    assert!(one.abs_diff(other) * 100 <= one, "{one} and {other}");
    world.change(1, weight(300), None, None);
    world.run(2 * half);
    let [one, three] = [0, 1].map(|host| world.count(host, 0, half, 2 * half));
    assert_one_to_three(one, three);
    let cap = Cap {
        per_second: 10_000,
        burst: 10,
    };
    world.change(1, weight(300), Some(cap), None);
    world.run(3 * half);
    let count = world.count(1, 0, 2 * half, 3 * half);
    // Beside those that the drive had by then.
    assert!((4_900..=5_200).contains(&count), "{count}");
    world.change(1, weight(300), None, None);
    world.run(4 * half);
    let [one, three] = [0, 1].map(|host| world.count(host, 0, 3 * half, 4 * half));
    assert_one_to_three(one, three);
}

#[test]
fn namespaces_of_a_tenant_share_its_part() {
    // Two tenants with the same weight. One has two namespaces, 1:3, on one queue; the other has
    // one.
    let part = |nsid| Load {
        nsid,
        ..Load::reads(4096, 128)
    };
    let asked = vec![
        Asked {
            loads: vec![part(1), part(2)],
            namespaces: 2,
        },
        Asked::from(part(1)),
    ];
    let mut world = World::new(Some(preset(OPTANE, GIB)), GIB, asked);
    for tenant in 0..2 {
        world.tenant(tenant.into(), tenant, weight(100));
    }
    world.namespace(0, 1, None, 100);
    world.namespace(0, 2, None, 300);
    world.run(SECOND);
    let [one, three] = [0, 1].map(|load| world.count(0, load, 0, SECOND));
    let other = world.count(1, 0, 0, SECOND);
    assert_one_to_three(one, three);
    assert!(
        (one + three).abs_diff(other) * 50 <= other,
        "{one}, {three}, {other}"
    );
}

#[test]
fn a_capped_namespace_holds_up_none_in_the_same_queue() {
    let part = |nsid| Load {
        nsid,
        ..Load::reads(4096, 64)
    };
    let asked = vec![Asked {
        loads: vec![part(1), part(2)],
        namespaces: 2,
    }];
    let mut world = World::new(Some(preset(OPTANE, GIB)), GIB, asked);
    let cap = Cap {
        per_second: 100,
        burst: 1,
    };
    world.change(0, weight(100), Some(cap), None);
    world.change(1, weight(100), None, None);
    world.namespace(0, 1, Some(0), 100);
    world.namespace(0, 2, Some(1), 100);
    world.run(SECOND);
    let [capped, free] = [0, 1].map(|load| world.count(0, load, 0, SECOND));
    assert!((98..=102).contains(&capped), "{capped}");
    assert!(free >= OPTANE_RATE * 98 / 100, "{free}");
    let figures = world.figures(0);
    assert!(figures.capped > 0 && figures.commands == capped + figures.in_flight);
}

#[test]
fn a_tenant_has_no_more_in_flight_than_it_may() {
    let mut world = tenants(OPTANE, &[(100, Load::reads(4096, 64))]);
    let spec = TenantSpec {
        in_flight: Some(3),
        ..weight(100)
    };
    world.change(0, spec, None, None);
    for step in 1..200 {
        world.run(step * 10_000);
        assert!(world.in_flight() <= 3);
    }
    assert!(world.count(0, 0, 0, SECOND) > 300);
}

#[test]
fn a_medium_that_does_commands_at_once_is_shared_by_weight_too() {
    // Its time is the reactor's: a host that sends as much as it may in each turn has as many turns
    // as the other.
    let load = Load {
        opcode: WRITE,
        ..Load::reads(4096, 32)
    };
    let mut world = World::new(None, GIB, vec![Asked::from(load), Asked::from(load)]);
    world.tenant(0, 0, weight(100));
    world.tenant(1, 1, weight(300));
    world.run_turns(40_000, 1_000);
    let [one, three] = [0, 1].map(|host| world.count(host, 0, 0, u64::MAX));
    assert_one_to_three(one, three);
}

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn the_total_never_falls_as_tenants_grow_and_equal_ones_are_equal() {
        for (drive, depth) in [(OPTANE, 1), (OPTANE, 32), (FLASH, 1), (FLASH, 32)] {
            let mut before = 0;
            for count in [1, 2, 4, 8] {
                let mut world = tenants(drive, &vec![(100, Load::reads(4096, depth)); count]);
                let until = SECOND / 2;
                world.run(until);
                let each: Vec<u64> = (0..count)
                    .map(|host| world.count(host, 0, 0, until))
                    .collect();
                let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
                let total: u64 = each.iter().sum();
                println!("{drive} {depth} x {count}: {total}, {least} to {most}");
                assert!(
                    (most - least) * 100 <= most * 3,
                    "{drive}, {depth}: {each:?}"
                );
                assert!(
                    total * 1000 >= before * 999,
                    "{drive}, {depth}: {before}, {total}"
                );
                before = total;
            }
        }
    }
}
