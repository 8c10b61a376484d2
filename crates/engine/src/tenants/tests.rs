//! What tenants keep of namespaces that come and go.

use super::*;

fn namespace(start: u64) -> NamespaceKey {
    NamespaceKey {
        channel: ChannelId(0),
        start,
    }
}

fn tenants() -> Tenants {
    let mut tenants = Tenants::default();
    tenants.set(TenantId(0), TenantSpec::default(), Arc::default());
    tenants.begin_turn(Time(1), &mut Left::default());
    tenants
}

const WORK: Work = Work {
    opcode: 2,
    bytes: 4096,
};

#[test]
fn namespaces_that_are_made_for_ever_take_no_more_room() {
    let mut tenants = tenants();
    for start in 0..10_000 {
        let flow = tenants
            .flow_of(Some(TenantId(0)), namespace(start))
            .unwrap();
        assert!(tenants.admit(flow));
        tenants.issued(flow, WORK, true);
        tenants.ended(flow, WORK, Time(1));
    }
    assert_eq!((tenants.flows.len(), tenants.shares.len()), (FLOWS, 1));
}

/// What a medium has of a namespace is not forgotten for another one's sake.
#[test]
fn a_namespace_with_commands_in_flight_keeps_its_place() {
    let mut tenants = tenants();
    let flow = |tenants: &mut Tenants, start| tenants.flow_of(Some(TenantId(0)), namespace(start));
    let first = flow(&mut tenants, 0).unwrap();
    tenants.issued(first, WORK, true);
    for start in 1..1_000 {
        assert_ne!(flow(&mut tenants, start), Some(first));
    }
    assert_eq!(flow(&mut tenants, 0), Some(first));
    assert_eq!(tenants.flows[usize::from(first.0)].claim.in_flight, 1);
}

#[test]
fn what_is_nobodys_any_more_is_forgotten() {
    let mut tenants = tenants();
    for start in 0..100 {
        tenants.assign(namespace(start), Some(TenantId(0)), 300);
        tenants.assign(namespace(start), None, TenantSpec::default().weight);
    }
    assert!(tenants.assigned.is_empty());
}
