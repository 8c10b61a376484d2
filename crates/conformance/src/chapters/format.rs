//! Format NVM (Base 2.1, 5.1.10).

use super::namespaces::{formats, ns_again};
use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Ns, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Cqe, Sqe, status, u8_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "format",
    title: "Format NVM",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    format_each, "Base 2.1, 5.1.10", "Format NVM changes to each LBA format without metadata, and the capacity in bytes stays";
    format_erases, "Base 2.1, 5.1.10", "Format NVM with a user data erase leaves none of the old data";
    format_same, "Base 2.1, 5.1.10", "Format NVM to the format that is in use succeeds, and the namespace works";
    format_bad_format, "Base 2.1, 5.1.10", "Format NVM to an LBA format that is not there is refused (10Ah)";
    format_bad_erase, "Base 2.1, 5.1.10", "Format NVM with a reserved or absent kind of erase is refused (002h)";
    format_bad_protection, "Base 2.1, 5.1.10", "Format NVM with protection information that is not there is refused";
    format_bad_namespace, "Base 2.1, 5.1.10", "Format NVM of NSID 0 or one beyond NN is refused";
    format_others_untouched, "Base 2.1, 5.1.10", "Format NVM of one namespace leaves others alone, where FNA says so";
    format_all, "Base 2.1, 5.1.10", "Format NVM of FFFFFFFFh does as FNA says";
    format_progress, "NVM 1.1, 4.1.5.1", "the format progress indicator reports that nothing remains";
    format_stays, "Base 2.1, 5.1.10", "a format is there after a reset";
];

/// A Format NVM command of this format, with a kind of erase.
fn format_sqe(nsid: u32, format: u32, erase: u32) -> Sqe {
    let dword = format & 0xf | (format >> 4 & 0b11) << 12 | erase << 9;
    Sqe::new(0x80).nsid(nsid).dw(10, dword)
}

/// Formats, which may take longer than other commands.
fn format(bench: &mut Bench, nsid: u32, format: u32, erase: u32) -> Verdict<Cqe> {
    bench.admin(format_sqe(nsid, format, erase))
}

fn needs_format(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(1, "Format NVM")
}

fn format_in_use(identity: &[u8]) -> u32 {
    let flbas = u32::from(u8_at(identity, 26));
    flbas & 0xf | (flbas >> 5 & 0b11) << 4
}

fn format_each(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let (ns, mut pair) = bench.io()?;
    let before = format_in_use(&ns.identity);
    let bytes = ns.blocks * u64::try_from(ns.block_len).unwrap_or(512);
    let mut order = formats(&ns.identity);
    order.push((before, u64::try_from(ns.block_len).unwrap_or(512)));
    for (index, block_len) in order {
        format(bench, ns.nsid, index, 0)?.ok()?;
        let now = ns_again(bench, ns.nsid)?;
        same("FLBAS, format index", format_in_use(&now.identity), index)?;
        same(
            "bytes of a block",
            u64::try_from(now.block_len).unwrap_or(0),
            block_len,
        )?;
        same("NSZE after Format NVM", now.blocks, bytes / block_len)?;
        for slba in [0, now.blocks - 1] {
            let data = pattern(now.block_len, u64::from(index) ^ slba);
            bench.write_blocks(&mut pair, &now, slba, &data)?;
            let found = bench.read_blocks(&mut pair, &now, slba, 1)?;
            same_bytes("a block of the new format", &found, &data)?;
        }
        let mem = bench.mem(now.block_len)?;
        let past = bench.transfer(&now, opcode::READ, now.blocks, 1, &mem)?;
        bench
            .run(&mut pair, past)?
            .expect(status::LBA_OUT_OF_RANGE)?;
    }
    Ok(())
}

fn format_erases(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let (ns, mut pair) = bench.io()?;
    let index = format_in_use(&ns.identity);
    let places = [0, 1, ns.blocks / 2, ns.blocks - 1];
    let old = |slba: u64| pattern(ns.block_len, slba ^ 0xe4a5e);
    for slba in places {
        bench.write_blocks(&mut pair, &ns, slba, &old(slba))?;
    }
    format(bench, ns.nsid, index, 1)?.ok()?;
    for slba in places {
        let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
        check(found != old(slba), || {
            format!("block {slba} has its old data after a user data erase")
        })?;
    }
    Ok(())
}

fn format_same(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let (ns, mut pair) = bench.io()?;
    let index = format_in_use(&ns.identity);
    for _ in 0..3 {
        format(bench, ns.nsid, index, 0)?.ok()?;
        let data = pattern(ns.block_len, 0x5a3e);
        bench.write_blocks(&mut pair, &ns, 1, &data)?;
        let found = bench.read_blocks(&mut pair, &ns, 1, 1)?;
        same_bytes("a block after Format NVM", &found, &data)?;
    }
    Ok(())
}

fn format_bad_format(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let ns = bench.ns()?;
    let count = u32::from(u8_at(&ns.identity, 25)) + 1 + u32::from(u8_at(&ns.identity, 82));
    for index in [count, 15, 63] {
        if index >= count {
            format(bench, ns.nsid, index, 0)?.expect(status::INVALID_FORMAT)?;
        }
    }
    Ok(())
}

fn format_bad_erase(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let ns = bench.ns()?;
    let index = format_in_use(&ns.identity);
    let cryptographic = u8_at(&bench.controller()?, 524) >> 2 & 1 == 1;
    for erase in 2..8 {
        if erase != 2 || !cryptographic {
            format(bench, ns.nsid, index, erase)?
                .expect_any(&[status::INVALID_FIELD, status::INVALID_FORMAT])?;
        }
    }
    Ok(())
}

fn format_bad_protection(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let ns = bench.ns()?;
    let index = format_in_use(&ns.identity);
    for kind in 1..=3_u32 {
        if u32::from(u8_at(&ns.identity, 28)) >> (kind - 1) & 1 == 0 {
            let sqe = format_sqe(ns.nsid, index, 0);
            bench
                .admin(sqe.dw(10, sqe.0[10] | kind << 5))?
                .expect_any(&[status::INVALID_FIELD, status::INVALID_FORMAT])?;
        }
    }
    Ok(())
}

fn format_bad_namespace(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let nn = u32_at(&bench.controller()?, 516);
    for nsid in [0, nn.saturating_add(1), 0xffff_fffe] {
        format(bench, nsid, 0, 0)?
            .expect_any(&[status::INVALID_FIELD, status::INVALID_NAMESPACE])?;
    }
    Ok(())
}

fn format_others_untouched(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let fna = u8_at(&bench.controller()?, 524);
    if fna & 1 == 1 {
        return not_supported("FNA bit 0: a format is of all namespaces");
    }
    let (ns, mut pair) = bench.io()?;
    let mut others = Vec::new();
    for nsid in bench.active()? {
        let other = Ns::new(nsid, bench.identify(0x00, nsid)?);
        others.extend(other.filter(|other| other.nsid != ns.nsid));
    }
    if others.is_empty() {
        return not_supported("there is one namespace");
    }
    for other in &others {
        for slba in [0, other.blocks - 1] {
            let data = pattern(other.block_len, slba);
            bench.write_blocks(&mut pair, other, slba, &data)?;
        }
    }
    format(bench, ns.nsid, format_in_use(&ns.identity), 1)?.ok()?;
    for other in &others {
        let now = ns_again(bench, other.nsid)?;
        same_bytes(
            "another namespace's identity",
            &now.identity,
            &other.identity,
        )?;
        for slba in [0, other.blocks - 1] {
            let data = pattern(other.block_len, slba);
            let found = bench.read_blocks(&mut pair, other, slba, 1)?;
            let what = format!("block {slba} of namespace {}", other.nsid);
            same_bytes(&what, &found, &data)?;
        }
    }
    Ok(())
}

fn format_all(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    // Bit 3 set: FFFFFFFFh is not supported.
    let fna = u8_at(&bench.controller()?, 524);
    let (ns, mut pair) = bench.io()?;
    let active = bench.active()?;
    let mut kept = Vec::new();
    for &nsid in &active {
        kept.push(format_in_use(&bench.identify(0x00, nsid)?));
    }
    let old = pattern(ns.block_len, 0xa11);
    bench.write_blocks(&mut pair, &ns, 0, &old)?;
    let cqe = format(bench, 0xffff_ffff, format_in_use(&ns.identity), 1)?;
    if fna >> 3 & 1 == 1 {
        return cqe
            .expect_any(&[status::INVALID_FIELD, status::INVALID_NAMESPACE])
            .map(drop);
    }
    cqe.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 1)?;
    let erased = check(found != old, || "block 0 has its old data".into());
    for (nsid, index) in active.into_iter().zip(kept) {
        format(bench, nsid, index, 0)?.ok()?;
    }
    erased
}

fn format_progress(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let ns = bench.ns()?;
    format(bench, ns.nsid, format_in_use(&ns.identity), 0)?.ok()?;
    let now = ns_again(bench, ns.nsid)?;
    let progress = u8_at(&now.identity, 32);
    if progress >> 7 == 0 {
        return not_supported("FPI bit 7: no format progress indicator");
    }
    same("FPI, percentage that remains", progress & 0x7f, 0)
}

fn format_stays(bench: &mut Bench) -> Verdict {
    needs_format(bench)?;
    let ns = bench.ns()?;
    let before = format_in_use(&ns.identity);
    let other = formats(&ns.identity)
        .into_iter()
        .find(|(index, _)| *index != before);
    let Some((index, _)) = other else {
        return not_supported("there is one LBA format");
    };
    format(bench, ns.nsid, index, 0)?.ok()?;
    bench.start()?;
    let found = bench.identify(0x00, ns.nsid).map(|n| format_in_use(&n));
    format(bench, ns.nsid, before, 0)?.ok()?;
    same("FLBAS after a reset", found?, index)
}
