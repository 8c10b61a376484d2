//! Identify (Base 2.1, 5.1.13; NVM 1.1, 4.1.5).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::Bench;
use crate::verdict::{Verdict, check, not_supported, same, same_bytes, zero};
use crate::wire::{Sqe, status, text, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "identify",
    title: "Identify",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    identify_controller, "Base 2.1, 5.1.13.2.1", "Identify Controller: texts, entry sizes, versions and limits as the specification has them";
    identify_controller_reserved, "Base 2.1, 5.1.13.2.1", "reserved bytes of Identify Controller are 0";
    identify_controller_any_nsid, "Base 2.1, 5.1.13.1", "Identify Controller ignores NSID";
    identify_subnqn, "Base 2.1, 4.7", "SUBNQN is a qualified name, ended by NUL";
    identify_namespace, "NVM 1.1, 4.1.5.1", "Identify Namespace: sizes, formats and identifiers agree with each other";
    identify_namespace_bad_nsid, "Base 2.1, 5.1.13.1", "Identify Namespace of NSID 0, or of one beyond NN, is refused (00Bh)";
    identify_namespace_inactive, "Base 2.1, 5.1.13.1", "Identify Namespace of an inactive NSID is all zeros";
    identify_namespace_all, "NVM 1.1, 4.1.5.1", "Identify Namespace of FFFFFFFFh reports the common values of all with Namespace Management, and is refused (00Bh) without";
    active_list, "Base 2.1, 5.1.13.2.2", "the list of active namespaces rises, ends with zeros, and each has a size";
    active_list_from, "Base 2.1, 5.1.13.2.2", "the list of active namespaces has those above NSID only";
    active_list_bad_nsid, "Base 2.1, 5.1.13.2.2", "a list of active namespaces above FFFFFFFEh or FFFFFFFFh is refused (00Bh)";
    descriptors, "Base 2.1, 5.1.13.2.3", "identification descriptors have the lengths of their types, the command set among them, and end with zeros";
    descriptors_agree, "Base 2.1, 5.1.13.2.3", "NGUID and EUI-64 are the same in descriptors and in Identify Namespace";
    descriptors_bad_nsid, "Base 2.1, 5.1.13.2.3", "descriptors of NSID 0, FFFFFFFFh, or one beyond NN are refused (00Bh)";
    uuid_form, "Base 2.1, 4.7.1.4", "a UUID of a namespace has a version and the variant of RFC 9562";
    unique_identifiers, "Base 2.1, 4.5.1", "no two namespaces share an NGUID, EUI-64 or UUID";
    command_set_namespace, "NVM 1.1, 4.1.5.3", "Identify CNS 05h answers for the NVM command set";
    command_set_controller, "NVM 1.1, 4.1.5.4", "Identify CNS 06h answers for the NVM command set";
    command_set_list, "Base 2.1, 5.1.13.2.7", "Identify CNS 07h for the NVM command set lists what CNS 02h lists";
    independent, "Base 2.1, 5.1.13.2.8", "Identify CNS 08h reports that each active namespace is ready";
    command_set_unknown, "Base 2.1, 5.1.13.1", "Identify of a command set that is not there is refused (002h)";
    command_sets, "Base 2.1, 5.1.13.2.19", "Identify CNS 1Ch lists a combination with the NVM command set";
    allocated_list, "Base 2.1, 5.1.13.2.9", "the list of allocated namespaces contains the active ones, where there is Namespace Management";
    controller_list, "Base 2.1, 5.1.13.2.12", "the list of controllers has this one, where there is Namespace Management";
    unknown_cns, "Base 2.1, 5.1.13.1", "Identify with a reserved CNS is refused (002h)";
    identify_two_pages, "Base 2.1, 5.1.13", "Identify data may start inside a page and go on in another", pcie why::PRPS;
    identify_prp_rules, "Base 2.1, 4.3.1", "Identify data at an odd address, or with an offset in PRP Entry 2, is refused (013h)", pcie why::PRPS;
    identify_nowhere, "Base 2.1, 4.2.3", "Identify data where no memory is ends with an error, and the next command works", pcie why::PRPS;
    host_memory_buffer, "Base 2.1, 5.1.13.2.1", "HMMIN is not above HMPRE";
];

fn identify_controller(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    for (name, at, len) in [("SN", 4, 20), ("MN", 24, 40), ("FR", 64, 8)] {
        let field = &c[at..at + len];
        check(field.iter().all(|b| (0x20..=0x7e).contains(b)), || {
            format!("{name}: printable ASCII was expected, found {field:02x?}")
        })?;
        // Left justified: text, then spaces.
        check(field[0] != b' ' && !text(field).is_empty(), || {
            format!("{name} is empty, or starts with a space")
        })?;
    }
    same("SQES, required size", u8_at(&c, 512) & 0xf, 6)?;
    same("CQES, required size", u8_at(&c, 513) & 0xf, 4)?;
    check(u8_at(&c, 512) >> 4 >= 6, || {
        "SQES: maximum below required".into()
    })?;
    check(u8_at(&c, 513) >> 4 >= 4, || {
        "CQES: maximum below required".into()
    })?;
    check(u32_at(&c, 516) != 0, || "NN is 0".into())?;
    let version = u32_at(&c, 80);
    if version >= 0x0001_0400 {
        same("CNTRLTYPE (I/O controller)", u8_at(&c, 111), 1)?;
    }
    check(u16_at(&c, 78) <= 0xffef, || {
        format!("CNTLID {:#x}: FFF0h and above are reserved", u16_at(&c, 78))
    })?;
    // FRMW bits 3:1: one slot to seven.
    let slots = u8_at(&c, 260) >> 1 & 0b111;
    check(slots >= 1, || "FRMW: no firmware slot".into())?;
    let (warning, critical) = (u16_at(&c, 266), u16_at(&c, 268));
    check(warning <= critical || critical == 0, || {
        format!("WCTEMP {warning} is above CCTEMP {critical}")
    })?;
    // NPSS is 0's based: 31 is the last of the 32 descriptors.
    check(u8_at(&c, 263) <= 31, || "NPSS is above 31".into())?;
    let mnan = u32_at(&c, 540);
    check(mnan <= u32_at(&c, 516), || {
        format!("MNAN {mnan} is above NN {}", u32_at(&c, 516))
    })?;
    let page = bench.cap_bits(51, 48);
    same("CAP.MPSMIN", page, 0)
}

fn identify_controller_reserved(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    for (first, last) in [(588, 767), (1804, 2047)] {
        let what = format!("Identify Controller bytes {last}:{first}");
        zero(&what, &c[first..=last])?;
    }
    let cmic = u8_at(&c, 76);
    same("CMIC, reserved bits 7:4", cmic >> 4, 0)?;
    same("FRMW, reserved bits 7:6", u8_at(&c, 260) >> 6, 0)?;
    same("VWC, reserved bits 7:3", u8_at(&c, 525) >> 3, 0)
}

fn identify_controller_any_nsid(bench: &mut Bench) -> Verdict {
    let first = bench.controller()?;
    for nsid in [1, 0xffff_ffff] {
        let (cqe, data) = bench.try_identify(0x01, nsid)?;
        // Fields that are not used are ignored, or the command is refused.
        let cqe = cqe.expect_any(&[
            status::SUCCESS,
            status::INVALID_FIELD,
            status::INVALID_NAMESPACE,
        ])?;
        if cqe.is_success() {
            same_bytes(
                "Identify Controller with an NSID",
                &data[..256],
                &first[..256],
            )?;
        }
    }
    Ok(())
}

fn identify_subnqn(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    let name = &c[768..1024];
    let len = name.iter().position(|b| *b == 0).unwrap_or(256);
    check((1..=223).contains(&len), || {
        format!("SUBNQN has {len} bytes before its NUL; 1 to 223 were expected")
    })?;
    let name_text = text(&name[..len]);
    let (start, rest) = name_text.split_at(name_text.len().min(4));
    check(start == "nqn." && rest.contains(['.', ':']), || {
        format!("SUBNQN is {name_text:?}")
    })?;
    zero("SUBNQN behind its NUL", &name[len..])
}

fn identify_namespace(bench: &mut Bench) -> Verdict {
    for nsid in bench.active()? {
        let n = bench.identify(0x00, nsid)?;
        let (nsze, ncap, nuse) = (u64_at(&n, 0), u64_at(&n, 8), u64_at(&n, 16));
        check(nuse <= ncap && ncap <= nsze && nsze > 0, || {
            format!("namespace {nsid}: NUSE {nuse} <= NCAP {ncap} <= NSZE {nsze} was expected")
        })?;
        // THINP (NSFEAT bit 0) is what NCAP below NSZE asks for.
        check(u8_at(&n, 24) & 1 == 1 || ncap == nsze, || {
            format!("namespace {nsid}: NCAP {ncap} below NSZE {nsze} without thin provisioning")
        })?;
        let formats = usize::from(u8_at(&n, 25)) + 1 + usize::from(u8_at(&n, 82));
        let flbas = usize::from(u8_at(&n, 26));
        let index = flbas & 0xf | (flbas >> 5 & 0b11) << 4;
        check(index < formats && formats <= 64, || {
            format!("namespace {nsid}: format {index} of {formats}")
        })?;
        let lbads = u32_at(&n, 128 + 4 * index) >> 16 & 0xff;
        check(lbads >= 9, || {
            format!("namespace {nsid}: blocks of 2^{lbads} bytes; 512 is the least")
        })?;
        for other in formats..64 {
            let what = format!("namespace {nsid}: LBA format {other}, beyond NLBAF and NULBAF");
            same(&what, u32_at(&n, 128 + 4 * other), 0)?;
        }
        // Protection information in use needs the capability.
        let (dpc, dps) = (u8_at(&n, 28), u8_at(&n, 29));
        let kind = u32::from(dps & 0b111);
        check(kind == 0 || dpc >> (kind - 1) & 1 == 1, || {
            format!("namespace {nsid}: DPS {dps:#x} is not in DPC {dpc:#x}")
        })?;
    }
    Ok(())
}

fn nn(bench: &mut Bench) -> Verdict<u32> {
    Ok(u32_at(&bench.controller()?, 516))
}

fn identify_namespace_bad_nsid(bench: &mut Bench) -> Verdict {
    let nn = nn(bench)?;
    let mut bad = vec![0];
    if nn < 0xffff_fffe {
        bad.extend([nn + 1, 0xffff_fffe]);
    }
    for nsid in bad {
        bench
            .try_identify(0x00, nsid)?
            .0
            .expect(status::INVALID_NAMESPACE)?;
    }
    Ok(())
}

/// A valid NSID that is not active.
fn inactive(bench: &mut Bench) -> Verdict<u32> {
    let nn = nn(bench)?;
    let active = bench.active()?;
    match (1..=nn).find(|nsid| !active.contains(nsid)) {
        Some(nsid) => Ok(nsid),
        None => not_supported("every valid namespace is active"),
    }
}

fn identify_namespace_inactive(bench: &mut Bench) -> Verdict {
    let nsid = inactive(bench)?;
    let data = bench.identify(0x00, nsid)?;
    zero(&format!("Identify Namespace of inactive {nsid}"), &data)
}

fn identify_namespace_all(bench: &mut Bench) -> Verdict {
    let managed = u16_at(&bench.controller()?, 256) >> 3 & 1 == 1;
    let (cqe, data) = bench.try_identify(0x00, 0xffff_ffff)?;
    if !managed {
        return cqe.expect(status::INVALID_NAMESPACE).map(drop);
    }
    cqe.ok()?;
    same(
        "NSZE of what namespaces have in common",
        u64_at(&data, 0),
        0,
    )?;
    check(u32_at(&data, 128) != 0, || {
        "no LBA format is offered".into()
    })
}

fn active_list(bench: &mut Bench) -> Verdict {
    let data = bench.identify(0x02, 0)?;
    let ids: Vec<u32> = (0..1024).map(|n| u32_at(&data, 4 * n)).collect();
    let count = ids.iter().take_while(|id| **id != 0).count();
    check(ids[count..].iter().all(|id| *id == 0), || {
        "the list goes on behind its first zero".into()
    })?;
    check(ids[..count].windows(2).all(|two| two[0] < two[1]), || {
        format!("the list does not rise: {:?}", &ids[..count])
    })?;
    let nn = nn(bench)?;
    for &nsid in &ids[..count] {
        check(nsid <= nn, || format!("namespace {nsid} is beyond NN {nn}"))?;
        let n = bench.identify(0x00, nsid)?;
        check(u64_at(&n, 0) > 0, || {
            format!("active namespace {nsid} has no blocks")
        })?;
    }
    Ok(())
}

fn active_list_from(bench: &mut Bench) -> Verdict {
    let active = bench.active()?;
    for &from in &active {
        let data = bench.identify(0x02, from)?;
        let above: Vec<u32> = active.iter().copied().filter(|id| *id > from).collect();
        for (place, &nsid) in above.iter().chain([&0]).enumerate() {
            let what = format!("list above {from}, entry {place}");
            same(&what, u32_at(&data, 4 * place), nsid)?;
        }
    }
    Ok(())
}

fn active_list_bad_nsid(bench: &mut Bench) -> Verdict {
    for nsid in [0xffff_fffe, 0xffff_ffff] {
        bench
            .try_identify(0x02, nsid)?
            .0
            .expect(status::INVALID_NAMESPACE)?;
    }
    Ok(())
}

/// Descriptors of a namespace: type and identifier.
fn descriptors_of(bench: &mut Bench, nsid: u32) -> Verdict<Vec<(u8, Vec<u8>)>> {
    let data = bench.identify(0x03, nsid)?;
    let mut found = Vec::new();
    let mut at = 0;
    while at + 4 <= data.len() && data[at + 1] != 0 {
        let (nidt, len) = (data[at], usize::from(data[at + 1]));
        let wanted = match nidt {
            1 => 8,
            2 | 3 => 16,
            4 => 1,
            _ => len,
        };
        same(
            &format!("namespace {nsid}, NIDL of type {nidt}"),
            len,
            wanted,
        )?;
        check((1..=4).contains(&nidt), || {
            format!("namespace {nsid}: descriptor type {nidt} is reserved")
        })?;
        check(found.iter().all(|(other, _)| *other != nidt), || {
            format!("namespace {nsid}: two descriptors of type {nidt}")
        })?;
        check(at + 4 + len <= data.len(), || {
            format!("namespace {nsid}: a descriptor ends behind the page")
        })?;
        zero("reserved bytes of a descriptor", &data[at + 2..at + 4])?;
        found.push((nidt, data[at + 4..at + 4 + len].to_vec()));
        at += 4 + len;
    }
    zero("behind the last descriptor", &data[at..])?;
    Ok(found)
}

fn descriptors(bench: &mut Bench) -> Verdict {
    let css = bench.cap_bits(43, 43);
    for nsid in bench.active()? {
        let found = descriptors_of(bench, nsid)?;
        check(found.iter().any(|(kind, _)| (1..=3).contains(kind)), || {
            format!("namespace {nsid} has no NGUID, EUI-64 or UUID")
        })?;
        let csi = found.iter().find(|(kind, _)| *kind == 4);
        match csi {
            Some((_, csi)) => same("Command Set Identifier", csi[0], 0)?,
            None if css == 1 => {
                return crate::verdict::fail(format!(
                    "namespace {nsid} reports no command set, and CAP.CSS offers several"
                ));
            }
            None => {}
        }
    }
    Ok(())
}

fn descriptors_agree(bench: &mut Bench) -> Verdict {
    for nsid in bench.active()? {
        let n = bench.identify(0x00, nsid)?;
        let found = descriptors_of(bench, nsid)?;
        for (kind, at, len, name) in [(1, 120, 8, "EUI-64"), (2, 104, 16, "NGUID")] {
            let told = found.iter().find(|(other, _)| *other == kind);
            let none = vec![0; len];
            let told = told.map_or(&none, |(_, id)| id);
            let what = format!("namespace {nsid}, {name} of Identify against its descriptor");
            same_bytes(&what, &n[at..at + len], told)?;
        }
    }
    Ok(())
}

fn descriptors_bad_nsid(bench: &mut Bench) -> Verdict {
    let nn = nn(bench)?;
    for nsid in [0, 0xffff_ffff, nn.saturating_add(1)] {
        bench
            .try_identify(0x03, nsid)?
            .0
            .expect(status::INVALID_NAMESPACE)?;
    }
    Ok(())
}

fn uuid_form(bench: &mut Bench) -> Verdict {
    let mut any = false;
    for nsid in bench.active()? {
        let found = descriptors_of(bench, nsid)?;
        for (_, uuid) in found.iter().filter(|(kind, _)| *kind == 3) {
            any = true;
            check((1..=8).contains(&(uuid[6] >> 4)), || {
                format!("namespace {nsid}: the UUID {uuid:02x?} has no version")
            })?;
            same("variant", uuid[8] >> 6, 0b10)?;
        }
    }
    if any {
        Ok(())
    } else {
        not_supported("no namespace has a UUID")
    }
}

fn unique_identifiers(bench: &mut Bench) -> Verdict {
    let mut seen: Vec<(u8, Vec<u8>, u32)> = Vec::new();
    for nsid in bench.active()? {
        for (kind, id) in descriptors_of(bench, nsid)? {
            if kind == 4 {
                continue;
            }
            if let Some(other) = seen.iter().find(|s| s.0 == kind && s.1 == id) {
                return crate::verdict::fail(format!(
                    "namespaces {} and {nsid} share the identifier {id:02x?} of type {kind}",
                    other.2
                ));
            }
            seen.push((kind, id, nsid));
        }
    }
    Ok(())
}

/// Identify with a command set's identifier in dword 11 (bits 31:24).
fn identify_of_set(bench: &mut Bench, cns: u32, nsid: u32, csi: u32) -> Verdict<(u16, Vec<u8>)> {
    let (sqe, page) = bench.identify_sqe(cns, nsid)?;
    page.fill(0xa5);
    let cqe = bench.admin(sqe.dw(11, csi << 24))?;
    Ok((cqe.status(), page.bytes(0, 4096)))
}

fn has_set_identifies(bench: &mut Bench) -> Verdict {
    let version = u32_at(&bench.controller()?, 80);
    if version < 0x0002_0000 {
        return not_supported(format!("version {version:#x}: this came with 2.0"));
    }
    Ok(())
}

fn command_set_namespace(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    for nsid in bench.active()? {
        let (found, data) = identify_of_set(bench, 0x05, nsid, 0)?;
        same("status of CNS 05h", found, status::SUCCESS)?;
        // LBSTM is 0 without storage tags; ELBAF are dwords from byte 12 on.
        zero("reserved bytes 4095:268", &data[268..])?;
    }
    let (found, _) = identify_of_set(bench, 0x05, 0, 0)?;
    same(
        "status of CNS 05h with NSID 0",
        found,
        status::INVALID_NAMESPACE,
    )
}

fn command_set_controller(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    let (found, data) = identify_of_set(bench, 0x06, 0, 0)?;
    same("status of CNS 06h", found, status::SUCCESS)?;
    let verify_limit = u8_at(&data, 0);
    check(verify_limit < 64, || {
        format!("VSL {verify_limit} is absurd")
    })
}

fn command_set_list(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    let (found, data) = identify_of_set(bench, 0x07, 0, 0)?;
    same("status of CNS 07h", found, status::SUCCESS)?;
    let all = bench.identify(0x02, 0)?;
    same_bytes("CNS 07h against CNS 02h", &data, &all)
}

fn independent(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    for nsid in bench.active()? {
        let data = bench.identify(0x08, nsid)?;
        same("NSTAT, namespace ready", u8_at(&data, 14) & 1, 1)?;
        let n = bench.identify(0x00, nsid)?;
        let what = format!("namespace {nsid}: NMIC of CNS 08h against CNS 00h");
        same(&what, u8_at(&data, 1), u8_at(&n, 30))?;
        let what = format!("namespace {nsid}: RESCAP of CNS 08h against CNS 00h");
        same(&what, u8_at(&data, 2), u8_at(&n, 31))?;
    }
    Ok(())
}

fn command_set_unknown(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    for cns in [0x05, 0x06, 0x07] {
        // 30h is reserved (Base 2.1, figure of command set identifiers).
        let (found, _) = identify_of_set(bench, cns, 1, 0x30)?;
        let what = format!("status of CNS {cns:02x}h with command set 30h");
        same(&what, found, status::INVALID_FIELD)?;
    }
    Ok(())
}

fn command_sets(bench: &mut Bench) -> Verdict {
    has_set_identifies(bench)?;
    let (sqe, page) = bench.identify_sqe(0x1c, 0)?;
    // The controller that processes the command.
    let cqe = bench.admin(sqe.dw(10, 0xffff << 16 | 0x1c))?;
    if bench.cap_bits(43, 43) == 0 && !cqe.is_success() {
        return not_supported("CAP.CSS bit 6: the NVM command set is all there is");
    }
    cqe.ok()?;
    let first = u64_at(&page.bytes(0, 8), 0);
    check(first & 1 == 1, || {
        format!("the first combination is {first:#x}, without the NVM command set")
    })
}

fn allocated_list(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(3, "Namespace Management")?;
    let data = bench.identify(0x10, 0)?;
    let ids: Vec<u32> = (0..1024)
        .map(|n| u32_at(&data, 4 * n))
        .take_while(|id| *id != 0)
        .collect();
    check(ids.windows(2).all(|two| two[0] < two[1]), || {
        format!("the list of allocated namespaces does not rise: {ids:?}")
    })?;
    for nsid in bench.active()? {
        check(ids.contains(&nsid), || {
            format!("active namespace {nsid} is not among the allocated ones {ids:?}")
        })?;
        let data = bench.identify(0x11, nsid)?;
        let n = bench.identify(0x00, nsid)?;
        same_bytes("CNS 11h against CNS 00h", &data, &n)?;
    }
    Ok(())
}

fn controller_list(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(3, "Namespace Management")?;
    let cntlid = u16_at(&bench.controller()?, 78);
    let first = bench.active()?.first().copied().unwrap_or(1);
    for (cns, nsid) in [(0x12, first), (0x13, 0)] {
        let data = bench.identify(cns, nsid)?;
        let count = usize::from(u16_at(&data, 0));
        check(count <= 2047, || {
            format!("CNS {cns:02x}h lists {count} controllers")
        })?;
        let ids: Vec<u16> = (1..=count).map(|n| u16_at(&data, 2 * n)).collect();
        check(ids.contains(&cntlid), || {
            format!("CNS {cns:02x}h: controller {cntlid} is not among {ids:?}")
        })?;
        check(ids.windows(2).all(|two| two[0] < two[1]), || {
            format!("CNS {cns:02x}h: the list does not rise: {ids:?}")
        })?;
        zero("behind the list of controllers", &data[2 + 2 * count..])?;
        // From an identifier on.
        let (sqe, page) = bench.identify_sqe(cns, nsid)?;
        let from = u32::from(cntlid) + 1;
        bench.admin(sqe.dw(10, from << 16 | cns))?.ok()?;
        let after = page.bytes(0, 4);
        check(u16_at(&after, 0) == 0 || u16_at(&after, 2) > cntlid, || {
            format!("CNS {cns:02x}h lists controllers below CNTID")
        })?;
    }
    Ok(())
}

fn unknown_cns(bench: &mut Bench) -> Verdict {
    for cns in [0x1d, 0x7f, 0xbf, 0xff] {
        bench
            .try_identify(cns, 0)?
            .0
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn identify_two_pages(bench: &mut Bench) -> Verdict {
    let whole = bench.controller()?;
    let mem = bench.mem(3 * 4096)?;
    for offset in [4, 512, 2048, 4092] {
        mem.fill(0xa5);
        // The second page is not the one that follows.
        let sqe = Sqe::new(0x06)
            .dw(10, 1)
            .prps((mem.at(offset), mem.at(8192)));
        bench.admin(sqe)?.ok()?;
        let mut found = mem.bytes(offset, 4096 - offset);
        found.extend(mem.bytes(8192, offset));
        same_bytes("Identify in two pages", &found, &whole)?;
        let beside: Vec<u8> = [mem.bytes(0, offset), mem.bytes(4096, 4096)].concat();
        check(beside.iter().all(|b| *b == 0xa5), || {
            "Identify wrote outside of its pages".into()
        })?;
        let behind = mem.bytes(8192 + offset, 4096 - offset);
        check(behind.iter().all(|b| *b == 0xa5), || {
            "Identify wrote behind its end".into()
        })?;
    }
    Ok(())
}

fn identify_prp_rules(bench: &mut Bench) -> Verdict {
    let mem = bench.mem(8192)?;
    // PRP entries address dwords.
    for offset in [1, 2, 3] {
        let sqe = Sqe::new(0x06)
            .dw(10, 1)
            .prps((mem.at(offset), mem.at(4096)));
        bench.admin(sqe)?.expect(status::PRP_OFFSET_INVALID)?;
    }
    let sqe = Sqe::new(0x06)
        .dw(10, 1)
        .prps((mem.at(2048), mem.at(4096 + 4)));
    bench.admin(sqe)?.expect(status::PRP_OFFSET_INVALID)?;
    bench.controller().map(drop)
}

fn identify_nowhere(bench: &mut Bench) -> Verdict {
    for prp1 in [0x7fff_0000_0000, 0, u64::MAX - 4095] {
        let sqe = Sqe::new(0x06).dw(10, 1).prps((prp1, 0));
        bench.admin(sqe)?.expect_error()?;
    }
    bench.controller().map(drop)
}

fn host_memory_buffer(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    let (preferred, least) = (u32_at(&c, 272), u32_at(&c, 276));
    check(least <= preferred, || {
        format!("HMMIN {least} is above HMPRE {preferred}")
    })
}
