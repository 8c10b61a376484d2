//! The PCI function (PCIe Transport 1.1, 3; PCI 3.0).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, opcode};
use crate::verdict::{Verdict, check, fail, not_supported, same};
use crate::wire::{Sqe, u8_at, u16_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "pci",
    title: "Configuration space, capabilities and base address registers",
    scope: Scope::Pcie(why::FUNCTION),
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    class_code, "PCIe Transport 1.1, 3.8", "the class code is 010802h and the header is of type 0";
    identifiers, "Base 2.1, 5.1.13.2.1", "VID and SSVID of Identify Controller are those of the function";
    read_only_fields, "PCI 3.0, 6.2.1", "identifiers, class code and revision cannot be written";
    command_register, "PCI 3.0, 6.2.2", "memory space and bus master enable can be set and cleared";
    bus_master, "PCI 3.0, 6.2.2", "while bus master enable is 0 no I/O command is fetched or completed, and once it is set they complete";
    bus_master_admin, "PCI 3.0, 6.2.2", "while bus master enable is 0 no admin command is fetched or completed, and once it is set they complete";
    bus_master_reset, "PCI 3.0, 6.2.2", "the controller can be disabled while bus master enable is 0, and works once it is set";
    registers_bar, "PCIe Transport 1.1, 3.8", "BAR0 is memory, not I/O, of a power of two and 16 KiB at least";
    bars_give_their_size, "PCI 3.0, 6.2.5.1", "each BAR, written with ones, reads back the size that its region has";
    doorbells_in_bar, "PCIe Transport 1.1, 3.1.2", "doorbells of every queue that is granted lie in BAR0";
    capability_list, "PCI 3.0, 6.7", "the list of capabilities ends, stays behind the header, and has each once";
    power_management, "PCIe Transport 1.1, 3.8", "power management is there, of version 3, in D0, and D3hot can be entered and left";
    express, "PCIe Transport 1.1, 3.8", "the PCI Express capability describes an endpoint with function level reset and role-based error reporting";
    function_level_reset, "PCIe Transport 1.1, 3.8", "Initiate Function Level Reset resets the controller, and reads as 0";
    msix_tables, "PCIe Transport 1.1, 3.8", "the MSI-X table and its pending bits lie in BARs, apart from each other and from the registers";
    msix_entries, "PCI 3.0, 6.8.2", "entries of the MSI-X table keep what is written, for every vector";
    msix_control, "PCI 3.0, 6.8.2.3", "MSI-X enable and function mask can be written, the table size cannot";
    interrupt_pin, "PCI 3.0, 6.2.4", "the interrupt pin is none, or one of four";
    extended_list, "PCIe Transport 1.1, 3.8", "the list of extended capabilities is empty, or ends";
];

fn class_code(bench: &mut Bench) -> Verdict {
    let config = bench.config()?;
    // Programming interface, sub class, base class.
    same("class code", u32_at(&config, 0x08) >> 8, 0x01_0802)?;
    same("header type, layout", u8_at(&config, 0x0e) & 0x7f, 0)
}

fn identifiers(bench: &mut Bench) -> Verdict {
    let config = bench.config()?;
    let identity = bench.controller()?;
    same("VID", u16_at(&identity, 0), u16_at(&config, 0x00))?;
    same("SSVID", u16_at(&identity, 2), u16_at(&config, 0x2c))?;
    check(u16_at(&config, 0) != 0xffff, || {
        "vendor id FFFFh: no function responds".into()
    })
}

fn read_only_fields(bench: &mut Bench) -> Verdict {
    for at in [0x00, 0x08, 0x2c] {
        let before = bench.config32(at)?;
        bench.set_config32(at, !before)?;
        same(
            &format!("configuration dword {at:#x}"),
            bench.config32(at)?,
            before,
        )?;
    }
    Ok(())
}

fn command_register(bench: &mut Bench) -> Verdict {
    let before = bench.config16(0x04)?;
    bench.set_config16(0x04, before & !0b110)?;
    let off = bench.config16(0x04)?;
    bench.set_config16(0x04, before | 0b110)?;
    let on = bench.config16(0x04)?;
    same("command, bits 2:1 cleared", off & 0b110, 0)?;
    same("command, bits 2:1 set", on & 0b110, 0b110)
}

/// Bus Master Enable of the command register.
const BUS_MASTER: u16 = 1 << 2;

fn set_bus_master(bench: &mut Bench, on: bool) -> Verdict {
    let command = bench.config16(0x04)?;
    let command = if on {
        command | BUS_MASTER
    } else {
        command & !BUS_MASTER
    };
    bench.set_config16(0x04, command)
}

fn bus_master(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = bench.mem(4096)?;
    for round in 0..3 {
        data.fill(0xa5);
        set_bus_master(bench, false)?;
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.push(bench.put(
                &mut pair.sq,
                ns.sqe(opcode::READ, 0, 1).prps((data.iova(), 0)),
            ));
        }
        bench.ring_sq(&pair.sq)?;
        bench.idle()?;
        let quiet = pair.cq.peek().is_none();
        let untouched = data.bytes(0, 4096).iter().all(|byte| *byte == 0xa5);
        set_bus_master(bench, true)?;
        check(quiet, || format!("round {round}: a completion was posted"))?;
        check(untouched, || format!("round {round}: data was written"))?;
        for _ in &sent {
            bench.wait(&mut pair.cq)?.ok()?;
        }
    }
    bench.expect_nothing(&pair.cq, "each command completes once")
}

fn bus_master_admin(bench: &mut Bench) -> Verdict {
    set_bus_master(bench, false)?;
    let data = bench.mem(4096)?;
    data.fill(0xa5);
    let sqe = Sqe::new(0x06).prps((data.iova(), 0)).dw(10, 1);
    let cid = bench.admin_submit(sqe)?;
    bench.idle()?;
    let quiet = bench.with_admin(|_, pair| Ok(pair.cq.peek().is_none()))?;
    let untouched = data.bytes(0, 4096).iter().all(|byte| *byte == 0xa5);
    set_bus_master(bench, true)?;
    check(quiet, || "a completion was posted".into())?;
    check(untouched, || "data was written".into())?;
    bench.admin_wait(cid)?.ok()?;
    bench.controller().map(drop)
}

fn bus_master_reset(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    bench
        .run(&mut pair, Sqe::new(opcode::FLUSH).nsid(ns.nsid))?
        .ok()?;
    set_bus_master(bench, false)?;
    bench.disable()?;
    set_bus_master(bench, true)?;
    bench.start()?;
    let (ns, mut pair) = bench.io()?;
    bench
        .run(&mut pair, Sqe::new(opcode::FLUSH).nsid(ns.nsid))?
        .ok()
        .map(drop)
}

fn registers_bar(bench: &mut Bench) -> Verdict {
    let bar = bench.config32(0x10)?;
    same("BAR0, bit 0 (memory)", bar & 1, 0)?;
    check(matches!(bar >> 1 & 0b11, 0b00 | 0b10), || {
        format!(
            "BAR0, bits 2:1: expected 00b or 10b, found {:#x}",
            bar >> 1 & 0b11
        )
    })?;
    let len = bench.bus().bar_len(0)?;
    check(len.is_power_of_two() && len >= 0x4000, || {
        format!("BAR0 has {len:#x} bytes: a power of two from 4000h on was expected")
    })
}

/// The size that BAR `index` tells when it is written with ones, and how many
/// dwords it takes.
fn bar_size(bench: &Bench, index: u64) -> Verdict<(u64, u64)> {
    let at = 0x10 + 4 * index;
    let before = (bench.config32(at)?, bench.config32(at + 4)?);
    let wide = before.0 & 0b111 == 0b100;
    bench.set_config32(at, u32::MAX)?;
    let low = bench.config32(at)?;
    bench.set_config32(at, before.0)?;
    let mut mask = u64::from(low & if before.0 & 1 == 1 { !0b11 } else { !0b1111 });
    if wide && index < 5 {
        bench.set_config32(at + 4, u32::MAX)?;
        mask |= u64::from(bench.config32(at + 4)?) << 32;
        bench.set_config32(at + 4, before.1)?;
    } else if mask != 0 {
        mask |= 0xffff_ffff << 32;
    }
    Ok((mask.wrapping_neg(), if wide { 2 } else { 1 }))
}

fn bars_give_their_size(bench: &mut Bench) -> Verdict {
    let mut index = 0;
    while index < 6 {
        let (size, dwords) = bar_size(bench, index)?;
        let bar = u8::try_from(index).expect("six of them");
        let what = format!("size of BAR{bar} by its register, against its region's");
        same(&what, size, bench.bus().bar_len(bar)?)?;
        check(size == 0 || size.is_power_of_two(), || {
            format!("BAR{bar} has {size:#x} bytes, no power of two")
        })?;
        index += dwords;
    }
    Ok(())
}

fn doorbells_in_bar(bench: &mut Bench) -> Verdict {
    let (sqs, cqs) = bench.grant()?;
    bench.doorbells_fit(sqs.max(cqs))
}

fn capability_list(bench: &mut Bench) -> Verdict {
    let found = bench.capabilities()?;
    for id in [0x01, 0x05, 0x10, 0x11] {
        let count = found.iter().filter(|(other, _)| *other == id).count();
        check(count <= 1, || {
            format!("capability {id:02x}h is there {count} times")
        })?;
    }
    for (id, at) in &found {
        check(at % 4 == 0, || {
            format!("capability {id:02x}h lies at {at:#x}")
        })?;
    }
    Ok(())
}

fn needs(bench: &Bench, id: u8, name: &str) -> Verdict<u64> {
    match bench.capability(id)? {
        Some(at) => Ok(at),
        None => fail(format!("there is no {name} capability ({id:02x}h)")),
    }
}

fn power_management(bench: &mut Bench) -> Verdict {
    let at = needs(bench, 0x01, "power management")?;
    same("PMC, version", bench.config16(at + 2)? & 0b111, 0b011)?;
    let state = |bench: &Bench| Ok(bench.config16(at + 4)? & 0b11);
    same("PMCS, power state", state(bench)?, 0)?;
    bench.set_config16(at + 4, 0b11)?;
    let low: Verdict<u16> = state(bench);
    bench.set_config16(at + 4, 0)?;
    same("PMCS, power state D3hot", low?, 0b11)?;
    same("PMCS, power state D0", state(bench)?, 0)
}

fn express(bench: &mut Bench) -> Verdict {
    let at = needs(bench, 0x10, "PCI Express")?;
    let capabilities = bench.config16(at + 2)?;
    same("PXCAP, device/port type", capabilities >> 4 & 0xf, 0)?;
    let device = bench.config32(at + 4)?;
    same(
        "PXDCAP, role-based error reporting (15)",
        device >> 15 & 1,
        1,
    )?;
    same("PXDCAP, function level reset (28)", device >> 28 & 1, 1)
}

fn function_level_reset(bench: &mut Bench) -> Verdict {
    let at = needs(bench, 0x10, "PCI Express")?;
    if bench.config32(at + 4)? >> 28 & 1 == 0 {
        return not_supported("PXDCAP bit 28: no function level reset");
    }
    bench.pair(8)?;
    let control = bench.config16(at + 8)?;
    same("PXDC bit 15 when it is read", control >> 15, 0)?;
    bench.set_config16(at + 8, control | 1 << 15)?;
    bench.forget();
    bench.await_ready(false)?;
    same("CC after a function level reset", bench.read32(0x14)?, 0)?;
    same("AQA after a function level reset", bench.read32(0x24)?, 0)?;
    let again = bench.config16(at + 8)?;
    same("PXDC bit 15 after the reset", again >> 15, 0)?;
    bench.enable_function()?;
    bench.start()?;
    bench.controller().map(drop)
}

/// Where MSI-X has what: its capability, and table and pending bits by BAR and
/// offset.
struct Msix {
    at: u64,
    table: (u8, u64),
    pending: (u8, u64),
    vectors: u64,
}

fn msix(bench: &Bench) -> Verdict<Msix> {
    let Some(at) = bench.capability(0x11)? else {
        return not_supported("there is no MSI-X capability");
    };
    let place = |dword: u32| {
        let bar = u8::try_from(dword & 0b111).expect("three bits");
        (bar, u64::from(dword & !0b111))
    };
    Ok(Msix {
        at,
        table: place(bench.config32(at + 4)?),
        pending: place(bench.config32(at + 8)?),
        vectors: u64::from(bench.config16(at + 2)? & 0x7ff) + 1,
    })
}

fn msix_tables(bench: &mut Bench) -> Verdict {
    let Msix {
        table,
        pending,
        vectors,
        ..
    } = msix(bench)?;
    let areas = [
        ("MSI-X table", table, vectors * 16),
        ("MSI-X pending bits", pending, vectors.div_ceil(64) * 8),
    ];
    let (sqs, cqs) = bench.grant()?;
    let doorbells_end = bench.doorbell_at(2 * sqs.max(cqs) + 1) + 4;
    for (name, (bar, at), len) in areas {
        check(bar < 6, || format!("{name}: BAR{bar} does not exist"))?;
        let bar_len = bench.bus().bar_len(bar)?;
        check(at + len <= bar_len, || {
            format!("{name}: {len:#x} bytes at {at:#x} of BAR{bar}, which has {bar_len:#x}")
        })?;
        check(bar != 0 || at >= doorbells_end, || {
            format!("{name}: at {at:#x} of BAR0, where registers and doorbells are")
        })?;
    }
    let [
        (_, (_, table_at), table_len),
        (_, (_, pending_at), pending_len),
    ] = areas;
    let apart = table.0 != pending.0
        || table_at + table_len <= pending_at
        || pending_at + pending_len <= table_at;
    check(apart, || "MSI-X table and pending bits overlap".into())?;
    let offered = u64::from(bench.bus().vectors());
    same(
        "vectors of the table, against those that can be set up",
        vectors,
        offered,
    )
}

/// A host that sees no table and no enable bit cannot judge them.
fn needs_msix_seen(bench: &Bench) -> Verdict {
    if bench.bus().hides_msix() {
        not_supported("the system keeps MSI-X to itself, as VFIO does")
    } else {
        Ok(())
    }
}

fn msix_entries(bench: &mut Bench) -> Verdict {
    needs_msix_seen(bench)?;
    let found = msix(bench)?;
    let ((bar, table), vectors) = (found.table, found.vectors);
    for vector in 0..vectors {
        let at = table + vector * 16;
        let mut before = [0; 16];
        for (n, dword) in (0..).step_by(4).zip(before.chunks_exact_mut(4)) {
            bench.bus().bar_read(bar, at + n, dword)?;
        }
        // An address in dwords, its upper half, data, and the mask bit.
        let low = 0xfee0_0000 | u32::try_from(vector).unwrap_or(0) << 4;
        let wanted = [low, 0x0123_4567, 0x89ab_cdef, 1];
        for (n, dword) in (0..).step_by(4).zip(wanted) {
            bench.bus().bar_write(bar, at + n, &dword.to_le_bytes())?;
        }
        for (n, dword) in (0..).step_by(4).zip(wanted) {
            let mut found = [0; 4];
            bench.bus().bar_read(bar, at + n, &mut found)?;
            let what = format!("MSI-X table, vector {vector}, byte {n}");
            same(&what, u32_at(&found, 0), dword)?;
        }
        for (n, dword) in (0..).step_by(4).zip(before.chunks_exact(4)) {
            bench.bus().bar_write(bar, at + n, dword)?;
        }
    }
    Ok(())
}

fn msix_control(bench: &mut Bench) -> Verdict {
    needs_msix_seen(bench)?;
    let at = msix(bench)?.at;
    let before = bench.config16(at + 2)?;
    let judged = msix_control_judged(bench, at + 2, before & 0x7ff);
    bench.set_config16(at + 2, before)?;
    judged
}

fn msix_control_judged(bench: &Bench, at: u64, size: u16) -> Verdict {
    for bits in [0b00, 0b01, 0b10, 0b11] {
        // With another table size, and ones in the reserved bits.
        bench.set_config16(at, bits << 14 | !size & 0x3fff)?;
        let found = bench.config16(at)?;
        same("MSI-X enable and function mask", found >> 14, bits)?;
        same("MSI-X table size after it was written", found & 0x7ff, size)?;
    }
    Ok(())
}

fn interrupt_pin(bench: &mut Bench) -> Verdict {
    let pin = u8_at(&bench.config()?, 0x3d);
    check(pin <= 4, || format!("the interrupt pin is {pin:#x}"))
}

fn extended_list(bench: &mut Bench) -> Verdict {
    if bench.capability(0x10)?.is_none() {
        return not_supported("there is no PCI Express capability");
    }
    let mut at = 0x100;
    for _ in 0..960 {
        let header = bench.config32(at)?;
        if header == 0 || header == u32::MAX {
            return Ok(());
        }
        at = u64::from(header >> 20);
        if at == 0 {
            return Ok(());
        }
        check(at >= 0x100 && at % 4 == 0, || {
            format!("an extended capability lies at {at:#x}")
        })?;
    }
    fail("the list of extended capabilities goes in circles")
}
