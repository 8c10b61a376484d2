//! A placement plan as libvirt XML: the elements of a domain that pin it.

use std::fmt::Write as _;

use super::plan::Plan;

/// The elements to put into a `<domain>` (libvirt, Domain XML format: CPU Tuning, NUMA Node Tuning,
/// Memory Backing, Hypervisor features).
pub(super) fn domain(plan: &Plan) -> String {
    let list = |cpus: &[u32]| {
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        cpus.join(",")
    };
    let mut pins = String::new();
    for (vcpu, cpu) in plan.vcpus.iter().enumerate() {
        // writing to a string does not fail
        let _ = writeln!(pins, "  <vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>");
    }
    format!(
        "<vcpu placement='static'>{}</vcpu>
<cputune>
{pins}  <emulatorpin cpuset='{}'/>
</cputune>
<numatune>
  <memory mode='strict' nodeset='{}'/>
</numatune>
<memoryBacking>
  <source type='memfd'/>
  <access mode='shared'/>
</memoryBacking>
<features>
  <acpi/>
  <apic/>
  <kvm>
    <hint-dedicated state='on'/>
    <poll-control state='on'/>
  </kvm>
</features>
<cpu mode='host-passthrough'/>
",
        plan.vcpus.len(),
        list(&plan.emulator),
        plan.node
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_is_pinned() {
        let plan = Plan {
            reactors: vec![0],
            vcpus: vec![1, 5],
            emulator: vec![4, 6],
            node: 1,
            notes: Vec::new(),
            shared: false,
        };
        let xml = domain(&plan);
        for line in [
            "<vcpu placement='static'>2</vcpu>",
            "<vcpupin vcpu='0' cpuset='1'/>",
            "<vcpupin vcpu='1' cpuset='5'/>",
            "<emulatorpin cpuset='4,6'/>",
            "<memory mode='strict' nodeset='1'/>",
            "<access mode='shared'/>",
            "<poll-control state='on'/>",
        ] {
            assert!(xml.contains(line), "{line} is missing in\n{xml}");
        }
    }
}
