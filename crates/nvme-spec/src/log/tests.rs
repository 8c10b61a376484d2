use zerocopy::{FromZeros, transmute};

use super::*;
use crate::status::Status;

#[test]
fn error_entry_fields_lie_where_base_2_1_5_1_12_1_2_says() {
    assert_eq!(offset_of!(ErrorLogEntry, error_count), 0);
    assert_eq!(offset_of!(ErrorLogEntry, sqid), 8);
    assert_eq!(offset_of!(ErrorLogEntry, cid), 10);
    assert_eq!(offset_of!(ErrorLogEntry, status), 12);
    assert_eq!(offset_of!(ErrorLogEntry, pel), 14);
    assert_eq!(offset_of!(ErrorLogEntry, lba), 16);
    assert_eq!(offset_of!(ErrorLogEntry, nsid), 24);
    assert_eq!(offset_of!(ErrorLogEntry, vsia), 28);
    assert_eq!(offset_of!(ErrorLogEntry, trtype), 29);
    assert_eq!(offset_of!(ErrorLogEntry, csi), 30);
    assert_eq!(offset_of!(ErrorLogEntry, opc), 31);
    assert_eq!(offset_of!(ErrorLogEntry, command_specific), 32);
    assert_eq!(offset_of!(ErrorLogEntry, ttsi), 40);
    assert_eq!(offset_of!(ErrorLogEntry, lpver), 63);
}

#[test]
fn an_error_entry_decodes() {
    let mut bytes = [0u8; 64];
    bytes[0] = 9;
    bytes[8..10].copy_from_slice(&[1, 0]);
    bytes[10..12].copy_from_slice(&[0x34, 0x12]);
    // LBA Out of Range (80h) with phase 1 and Do Not Retry: 1 | 80h << 1 | 1 << 15.
    bytes[12..14].copy_from_slice(&[0x01, 0x81]);
    // Byte 40, bit 2 of the command.
    bytes[14..16].copy_from_slice(&[40, 2]);
    bytes[24] = 1;
    let entry: ErrorLogEntry = transmute!(bytes);
    assert_eq!((entry.error_count, entry.sqid, entry.cid), (9, 1, 0x1234));
    assert_eq!(entry.status.status(), Status::LBA_OUT_OF_RANGE);
    assert!(entry.status.phase() && entry.status.dnr());
    assert_eq!((entry.pel.byte(), entry.pel.bit()), (40, 2));
    assert_eq!(entry.nsid, 1);
    assert_eq!(u16::from(ParameterErrorLocation::NONE), 0xffff);
}

#[test]
fn smart_fields_lie_where_base_2_1_5_1_12_1_3_says() {
    assert_eq!(offset_of!(SmartLog, critical_warning), 0);
    assert_eq!(offset_of!(SmartLog, composite_temperature), 1);
    assert_eq!(offset_of!(SmartLog, available_spare), 3);
    assert_eq!(offset_of!(SmartLog, available_spare_threshold), 4);
    assert_eq!(offset_of!(SmartLog, percentage_used), 5);
    assert_eq!(offset_of!(SmartLog, endurance_group_critical_warning), 6);
    assert_eq!(offset_of!(SmartLog, data_units_read), 32);
    assert_eq!(offset_of!(SmartLog, data_units_written), 48);
    assert_eq!(offset_of!(SmartLog, host_read_commands), 64);
    assert_eq!(offset_of!(SmartLog, host_write_commands), 80);
    assert_eq!(offset_of!(SmartLog, controller_busy_time), 96);
    assert_eq!(offset_of!(SmartLog, power_cycles), 112);
    assert_eq!(offset_of!(SmartLog, power_on_hours), 128);
    assert_eq!(offset_of!(SmartLog, unsafe_shutdowns), 144);
    assert_eq!(offset_of!(SmartLog, media_errors), 160);
    assert_eq!(offset_of!(SmartLog, error_log_entries), 176);
    assert_eq!(offset_of!(SmartLog, warning_temperature_time), 192);
    assert_eq!(offset_of!(SmartLog, critical_temperature_time), 196);
    assert_eq!(offset_of!(SmartLog, temperature_sensors), 200);
    assert_eq!(offset_of!(SmartLog, tmt1_transition_count), 216);
    assert_eq!(offset_of!(SmartLog, tmt2_transition_count), 220);
    assert_eq!(offset_of!(SmartLog, tmt1_total_time), 224);
    assert_eq!(offset_of!(SmartLog, tmt2_total_time), 228);
}

#[test]
fn smart_counters_are_128_bits() {
    let mut log = SmartLog::new_zeroed();
    log.composite_temperature = U16::new(0x0131);
    log.data_units_written = U128::new(1 << 64 | 2);
    let bytes = log.as_bytes();
    assert_eq!(bytes[1..3], [0x31, 0x01]);
    assert_eq!(
        bytes[48..64],
        [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn firmware_slots_and_warnings() {
    assert_eq!(offset_of!(FirmwareSlotLog, afi), 0);
    assert_eq!(offset_of!(FirmwareSlotLog, frs), 8);
    let info = ActiveFirmwareInfo::new()
        .with_active_slot(1)
        .with_next_slot(2);
    assert_eq!(u8::from(info), 0x21);
    assert_eq!(u8::from(CriticalWarning::new().with_ttc(true)), 1 << 1);
    assert_eq!(u8::from(CriticalWarning::new().with_amro(true)), 1 << 3);
    assert_eq!(u8::from(CriticalWarning::new().with_pmrro(true)), 1 << 5);
}

#[test]
fn effects_lie_where_base_2_1_5_1_12_1_6_says() {
    let bits = |effects: CommandEffects| u32::from(effects);
    assert_eq!(bits(CommandEffects::new().with_csupp(true)), 1);
    assert_eq!(bits(CommandEffects::new().with_lbcc(true)), 1 << 1);
    assert_eq!(bits(CommandEffects::new().with_ncc(true)), 1 << 2);
    assert_eq!(bits(CommandEffects::new().with_nic(true)), 1 << 3);
    assert_eq!(bits(CommandEffects::new().with_ccc(true)), 1 << 4);
    assert_eq!(bits(CommandEffects::new().with_cser(3)), 3 << 14);
    assert_eq!(
        bits(CommandEffects::new().with_cse(SubmissionAndExecution::ONE_PER_CONTROLLER)),
        2 << 16
    );
    assert_eq!(bits(CommandEffects::new().with_uss(true)), 1 << 19);
    let scope = |csp: Scope| bits(CommandEffects::new().with_csp(csp));
    assert_eq!(scope(Scope::from(0xfff)), 0xfff << 20);
    assert_eq!(scope(Scope::new().with_nss(true)), 1 << 20);
    assert_eq!(scope(Scope::new().with_ctrls(true)), 1 << 21);
    assert_eq!(scope(Scope::new().with_nsets(true)), 1 << 22);
    assert_eq!(scope(Scope::new().with_egs(true)), 1 << 23);
    assert_eq!(scope(Scope::new().with_doms(true)), 1 << 24);
    assert_eq!(scope(Scope::new().with_nvmss(true)), 1 << 25);
    assert_eq!(SubmissionAndExecution::ONE_PER_NAMESPACE.0, 1);
    assert_eq!(offset_of!(CommandsSupportedAndEffectsLog, iocs), 1024);
    let supported = LidSupportedAndEffects::new().with_lsupp(true).with_lidsp(1);
    assert_eq!(u32::from(supported), 0x0001_0001);
    assert_eq!(u32::from(LidSupportedAndEffects::new().with_ios(true)), 2);
}

#[test]
fn feature_effects_lie_where_base_2_1_5_1_12_1_18_says() {
    let bits = |effects: FeatureEffects| u32::from(effects);
    assert_eq!(bits(FeatureEffects::new().with_fsupp(true)), 1);
    assert_eq!(bits(FeatureEffects::new().with_udcc(true)), 1 << 1);
    assert_eq!(bits(FeatureEffects::new().with_ncc(true)), 1 << 2);
    assert_eq!(bits(FeatureEffects::new().with_nic(true)), 1 << 3);
    assert_eq!(bits(FeatureEffects::new().with_ccc(true)), 1 << 4);
    assert_eq!(bits(FeatureEffects::new().with_uss(true)), 1 << 19);
    assert_eq!(
        bits(FeatureEffects::new().with_fsp(Scope::new().with_ctrls(true))),
        1 << 21
    );
    assert_eq!(
        bits(FeatureEffects::new().with_fsp(Scope::new().with_cdqs(true))),
        1 << 26
    );
}

#[test]
fn identifiers_are_those_of_base_2_1() {
    for (lid, number) in [
        (LogPageId::SUPPORTED_LOG_PAGES, 0x00),
        (LogPageId::ERROR_INFORMATION, 0x01),
        (LogPageId::SMART_HEALTH_INFORMATION, 0x02),
        (LogPageId::FIRMWARE_SLOT_INFORMATION, 0x03),
        (LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 0x04),
        (LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, 0x05),
        (LogPageId::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS, 0x12),
        (LogPageId::CHANGED_ALLOCATED_NAMESPACE_LIST, 0x1c),
        (LogPageId::RESERVATION_NOTIFICATION, 0x80),
        (LogPageId::SANITIZE_STATUS, 0x81),
    ] {
        assert_eq!(lid.0, number, "{lid:?}");
    }
}
