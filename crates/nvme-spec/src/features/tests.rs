use zerocopy::FromZeros;

use super::*;

#[test]
fn dwords_lie_where_base_2_1_5_1_25_says() {
    let arbitration = Arbitration::from(0x0403_0207);
    assert_eq!(arbitration.ab(), 7);
    assert_eq!(
        (
            arbitration.lpw_z(),
            arbitration.mpw_z(),
            arbitration.hpw_z()
        ),
        (2, 3, 4)
    );
    assert_eq!(u32::from(PowerManagement::new().with_wh(7)), 7 << 5);
    let threshold = TemperatureThreshold::from(0x0191_0157);
    assert_eq!(threshold.tmpth(), 0x157);
    assert_eq!(threshold.tmpsel(), 1);
    assert_eq!(threshold.thsel(), ThresholdType::UNDER);
    assert_eq!(threshold.tmpthh(), 6);
    assert_eq!(u32::from(ErrorRecovery::new().with_dulbe(true)), 1 << 16);
    assert_eq!(u32::from(VolatileWriteCache::new().with_wce(true)), 1);
    let queues = NumberOfQueues::from(0x003f_001f);
    assert_eq!((queues.nsq_z(), queues.ncq_z()), (0x1f, 0x3f));
    let coalescing = InterruptCoalescing::from(0x0000_0a07);
    assert_eq!((coalescing.thr_z(), coalescing.time()), (7, 10));
    assert_eq!(
        u32::from(InterruptVectorConfiguration::new().with_iv(3).with_cd(true)),
        0x0001_0003
    );
    let events = AsynchronousEventConfiguration::from(0x0000_031f);
    assert!(events.nan() && events.fan());
    assert_eq!(events.shcw(), 0x1f);
    assert_eq!(
        u32::from(SupportedCapabilities::new().with_changeable(true)),
        4
    );
}

#[test]
fn timestamp_is_six_bytes_and_attributes() {
    let bytes = [0x01u8, 0x02, 0x03, 0x04, 0x05, 0x06, 0b0000_0011, 0];
    let timestamp: Timestamp = zerocopy::transmute!(bytes);
    assert_eq!(timestamp.tstmp(), 0x0605_0403_0201);
    assert!(timestamp.synch());
    assert_eq!(timestamp.to(), TimestampOrigin::SET_FEATURES);
}

#[test]
fn identifiers_are_those_of_base_2_1() {
    for (fid, number) in [
        (FeatureId::ARBITRATION, 0x01),
        (FeatureId::POWER_MANAGEMENT, 0x02),
        (FeatureId::TEMPERATURE_THRESHOLD, 0x04),
        (FeatureId::ERROR_RECOVERY, 0x05),
        (FeatureId::VOLATILE_WRITE_CACHE, 0x06),
        (FeatureId::NUMBER_OF_QUEUES, 0x07),
        (FeatureId::INTERRUPT_COALESCING, 0x08),
        (FeatureId::INTERRUPT_VECTOR_CONFIGURATION, 0x09),
        (FeatureId::WRITE_ATOMICITY_NORMAL, 0x0a),
        (FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x0b),
        (FeatureId::TIMESTAMP, 0x0e),
        (FeatureId::KEEP_ALIVE_TIMER, 0x0f),
        (FeatureId::HOST_BEHAVIOR_SUPPORT, 0x16),
        (FeatureId::SANITIZE_CONFIG, 0x17),
        (FeatureId::IO_COMMAND_SET_PROFILE, 0x19),
        (FeatureId::SOFTWARE_PROGRESS_MARKER, 0x80),
        (FeatureId::HOST_IDENTIFIER, 0x81),
        (FeatureId::RESERVATION_NOTIFICATION_MASK, 0x82),
        (FeatureId::RESERVATION_PERSISTENCE, 0x83),
        (FeatureId::NAMESPACE_WRITE_PROTECTION_CONFIG, 0x84),
    ] {
        assert_eq!(fid.0, number, "{fid:?}");
    }
    assert_eq!(
        (Select::CURRENT.0, Select::DEFAULT.0, Select::SAVED.0),
        (0, 1, 2)
    );
}

#[test]
fn event_configuration_lies_where_base_2_1_5_1_25_1_5_says() {
    let bits = |events: AsynchronousEventConfiguration| u32::from(events);
    let none = AsynchronousEventConfiguration::new();
    assert_eq!(bits(none.with_nan(true)), 1 << 8);
    assert_eq!(bits(none.with_fan(true)), 1 << 9);
    assert_eq!(bits(none.with_tln(true)), 1 << 10);
    assert_eq!(bits(none.with_anacn(true)), 1 << 11);
    assert_eq!(bits(none.with_plealcn(true)), 1 << 12);
    assert_eq!(bits(none.with_lsian(true)), 1 << 13);
    assert_eq!(bits(none.with_egealcn(true)), 1 << 14);
    assert_eq!(bits(none.with_nnsshdn(true)), 1 << 15);
    assert_eq!(bits(none.with_tthry(true)), 1 << 16);
    assert_eq!(bits(none.with_rassn(true)), 1 << 17);
    assert_eq!(bits(none.with_rgrp0(true)), 1 << 18);
    assert_eq!(bits(none.with_ansan(true)), 1 << 19);
    assert_eq!(bits(none.with_zdcn(true)), 1 << 27);
    assert_eq!(bits(none.with_discovery(0xf)), 0xf << 28);
}

#[test]
fn the_other_features_dwords() {
    assert_eq!(u32::from(WriteAtomicityNormal::new().with_dn(true)), 1);
    assert_eq!(KeepAliveTimer::from(120_000).kato(), 120_000);
    assert_eq!(u32::from(SanitizeConfig::new().with_nodrm(true)), 1);
    assert_eq!(IoCommandSetProfile::from(0xffff_fe01).iocsci(), 1);
    assert_eq!(IoCommandSetProfile::from(0x1ff).iocsci(), 511);
    assert_eq!(SoftwareProgressMarker::from(0x1_02).pbslc(), 2);
    assert_eq!(u32::from(HostIdentifier::new().with_exhid(true)), 1);
    assert_eq!(
        (HOST_IDENTIFIER_SIZE, EXTENDED_HOST_IDENTIFIER_SIZE),
        (8, 16)
    );
    let protect = NamespaceWriteProtectionConfig::from(0xffff_fff9);
    assert_eq!(protect.wps(), WriteProtectionState::WRITE_PROTECT);
    assert_eq!(WriteProtectionState::PERMANENT_WRITE_PROTECT.0, 3);
    let capabilities = SupportedCapabilities::from(0b011);
    assert!(capabilities.saveable() && capabilities.namespace_specific());
}

#[test]
fn host_behavior_is_bytes() {
    let mut host = HostBehaviorSupport::new_zeroed();
    (host.acre, host.etdas, host.lbafee, host.hdisns) = (1, 2, 3, 4);
    host.cdfe = 0x0605;
    assert_eq!(host.as_bytes()[..7], [1, 2, 3, 4, 5, 6, 0]);
    assert_eq!(host.as_bytes().len(), 512);
}
