//! Tenants' records of namespaces that come and go.

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

/// A slot that stored the number 65,535 plus one would hold no flow: what was counted when a medium
/// got the command would be counted for ever.
#[test]
fn the_number_65535_is_no_flows() {
    let mut tenants = Tenants::default();
    let mut flows = 0..;
    let mut place = || {
        let at: u32 = flows.next().unwrap();
        let tenant = TenantId((at / FLOWS as u32) as u16);
        tenants.place_flow(tenant, namespace(at.into()), 1)
    };
    for id in 0..u16::MAX {
        assert_eq!(place(), Some(FlowId(id)));
    }
    assert_eq!(place(), None);
}

/// A medium's record of a namespace is not dropped for another one's sake.
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

/// Two engines that tell one budget, as they do at the end of each turn.
#[test]
fn what_a_tenant_had_is_the_sum_of_all_engines() {
    let budget = Arc::<Budget>::default();
    let mut engines = [Tenants::default(), Tenants::default()];
    let mut flows = Vec::new();
    for tenants in &mut engines {
        tenants.set(TenantId(3), TenantSpec::default(), budget.clone());
        tenants.begin_turn(Time(1), &mut Left::default());
        let flow = tenants.flow_of(Some(TenantId(3)), namespace(0)).unwrap();
        tenants.issued(flow, WORK, true);
        tenants.issued(flow, WORK, false);
        flows.push(flow);
    }
    assert_eq!(budget.figures(), TenantFigures::default());
    engines.iter_mut().for_each(Tenants::end_turn);
    engines.iter_mut().for_each(Tenants::end_turn);
    let both = TenantFigures {
        commands: 4,
        bytes: 4 * 4096,
        in_flight: 2,
        ..TenantFigures::default()
    };
    assert_eq!(budget.figures(), both);
    engines[1].ended(flows[1], WORK, Time(1));
    engines[1].held(flows[1]);
    engines[1].end_turn();
    let one = TenantFigures {
        in_flight: 1,
        held: 1,
        ..both
    };
    assert_eq!(budget.figures(), one);
}

#[test]
fn a_deleted_tenant_defers_no_other() {
    let mut tenants = Tenants::default();
    let budget = Arc::<Budget>::default();
    let cap = Cap {
        per_second: 1,
        burst: 1,
    };
    budget.set(Some(cap), None, Time(0));
    tenants.set(TenantId(0), TenantSpec::default(), budget);
    let now = Time(2_000_000_000);
    tenants.begin_turn(now, &mut Left::default());
    let flow = tenants.flow_of(Some(TenantId(0)), namespace(0)).unwrap();
    assert!(tenants.admit(flow));
    tenants.issued(flow, WORK, true);
    assert!(!tenants.admit(flow), "its cap has nothing left");
    tenants.remove(TenantId(0));
    assert!(tenants.admit(flow));
    assert_eq!(tenants.flow_of(Some(TenantId(0)), namespace(0)), None);
    tenants.ended(flow, WORK, now);
    assert_eq!(tenants.media[0].cost, 0);
}
