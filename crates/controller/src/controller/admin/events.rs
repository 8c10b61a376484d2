//! Asynchronous events (Base 2.1, 5.1.2): pending events, and the requests that report them.
//!
//! A request is held without an entry in the completion queue; it takes one only to report an
//! event. After an event of a type was reported, further ones of that type wait until the host has
//! read the type's log page with Retain Asynchronous Event cleared. Events that the host has not
//! enabled by Asynchronous Event Configuration are never recorded. Bounded: one bit per event,
//! [`REQUESTS`] requests.

use arrayvec::ArrayVec;
use nvme_spec::event::{
    ErrorInformation, EventDw0, EventType, IoCommandSpecificInformation, NoticeInformation,
    SmartHealthInformation,
};
use nvme_spec::features::AsynchronousEventConfiguration;
use nvme_spec::log::{CriticalWarning, LogPageId};

/// Requests that may be outstanding.
pub(crate) const REQUESTS: usize = 4;
/// AERL of Identify Controller, which is 0's based.
pub(crate) const AERL_Z: u8 = REQUESTS as u8 - 1;
/// Asynchronous Event Types: three bits.
pub(crate) const TYPES: usize = 8;

/// Everything a controller here reports without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell of a queue that does not exist was written.
    InvalidDoorbellRegister,
    /// A doorbell was written with a value that no host may write.
    InvalidDoorbellValue,
    /// A drive reports degraded reliability.
    Reliability,
    /// The composite temperature crossed a threshold.
    TemperatureThreshold,
    /// A drive has less spare than it should.
    SpareBelowThreshold,
    /// A namespace was attached, detached or changed.
    NamespaceChanged,
    /// A reservation or a registration of the host's was changed by another host.
    ReservationNotification,
    /// The sanitize operation that this controller was asked for has ended.
    SanitizeCompleted,
    /// A zone is in another state, and not because a host asked for that.
    ZoneChanged,
    /// An ANA group is in another state.
    AccessChanged,
}

impl Event {
    /// In the order in which several pending events are reported.
    const ALL: [Event; 10] = [
        Event::InvalidDoorbellRegister,
        Event::InvalidDoorbellValue,
        Event::Reliability,
        Event::TemperatureThreshold,
        Event::SpareBelowThreshold,
        Event::NamespaceChanged,
        Event::ReservationNotification,
        Event::SanitizeCompleted,
        Event::ZoneChanged,
        Event::AccessChanged,
    ];

    fn event_type(self) -> EventType {
        match self {
            Event::InvalidDoorbellRegister | Event::InvalidDoorbellValue => EventType::ERROR,
            Event::Reliability | Event::TemperatureThreshold | Event::SpareBelowThreshold => {
                EventType::SMART_HEALTH
            }
            Event::NamespaceChanged | Event::ZoneChanged | Event::AccessChanged => {
                EventType::NOTICE
            }
            Event::ReservationNotification => EventType::IO_COMMAND_SPECIFIC,
            Event::SanitizeCompleted => EventType::IO_COMMAND_SPECIFIC,
        }
    }

    fn information(self) -> u8 {
        match self {
            Event::InvalidDoorbellRegister => {
                ErrorInformation::WRITE_TO_INVALID_DOORBELL_REGISTER.0
            }
            Event::InvalidDoorbellValue => ErrorInformation::INVALID_DOORBELL_WRITE_VALUE.0,
            Event::Reliability => SmartHealthInformation::NVM_SUBSYSTEM_RELIABILITY.0,
            Event::TemperatureThreshold => SmartHealthInformation::TEMPERATURE_THRESHOLD.0,
            Event::SpareBelowThreshold => SmartHealthInformation::SPARE_BELOW_THRESHOLD.0,
            Event::ReservationNotification => {
                IoCommandSpecificInformation::RESERVATION_LOG_PAGE_AVAILABLE.0
            }
            Event::NamespaceChanged => NoticeInformation::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED.0,
            Event::ZoneChanged => NoticeInformation::ZONE_DESCRIPTOR_CHANGED.0,
            Event::AccessChanged => NoticeInformation::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE.0,
            Event::SanitizeCompleted => {
                IoCommandSpecificInformation::SANITIZE_OPERATION_COMPLETED.0
            }
        }
    }

    /// The log page that describes it, and clears it when it is read.
    fn page(self) -> LogPageId {
        match self {
            Event::InvalidDoorbellRegister | Event::InvalidDoorbellValue => {
                LogPageId::ERROR_INFORMATION
            }
            Event::Reliability | Event::TemperatureThreshold | Event::SpareBelowThreshold => {
                LogPageId::SMART_HEALTH_INFORMATION
            }
            Event::NamespaceChanged => LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
            Event::ReservationNotification => LogPageId::RESERVATION_NOTIFICATION,
            Event::SanitizeCompleted => LogPageId::SANITIZE_STATUS,
            Event::ZoneChanged => LogPageId::CHANGED_ZONE_LIST,
            Event::AccessChanged => LogPageId::ASYMMETRIC_NAMESPACE_ACCESS,
        }
    }

    /// Whether the host has enabled it (Base 2.1, 5.1.25.1.5). Errors and sanitize operations
    /// cannot be masked.
    fn is_asked_for(self, configuration: AsynchronousEventConfiguration) -> bool {
        let warnings = CriticalWarning::from(configuration.shcw());
        match self {
            // Reservation Notification Mask has its own say, namespace by namespace.
            Event::InvalidDoorbellRegister
            | Event::InvalidDoorbellValue
            | Event::ReservationNotification
            | Event::SanitizeCompleted => true,
            Event::Reliability => warnings.ndr() || warnings.amro() || warnings.vmbf(),
            Event::TemperatureThreshold => warnings.ttc(),
            Event::SpareBelowThreshold => warnings.ascbt(),
            Event::NamespaceChanged => configuration.nan(),
            Event::ZoneChanged => configuration.zdcn(),
            Event::AccessChanged => configuration.anacn(),
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Held requests and raised events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    requests: ArrayVec<u16, REQUESTS>,
    /// Pending events, by [`Event::bit`].
    raised: u16,
    /// By type: the event reported last whose page was not read since.
    told: [Option<Event>; TYPES],
}

impl Events {
    /// Holds a request by its command identifier; `false` where [`REQUESTS`] are held already.
    pub(crate) fn hold(&mut self, cid: u16) -> bool {
        self.requests.try_push(cid).is_ok()
    }

    /// Releases a held request, which was aborted; `false` where there is none with this
    /// identifier.
    pub(crate) fn release(&mut self, cid: u16) -> bool {
        match self.requests.iter().position(|held| *held == cid) {
            Some(index) => {
                self.requests.remove(index);
                true
            }
            None => false,
        }
    }

    /// Records an event if the host has enabled it; reported once however often it happens before
    /// the report.
    pub(crate) fn raise(&mut self, event: Event, configuration: AsynchronousEventConfiguration) {
        if event.is_asked_for(configuration) {
            self.raised |= event.bit();
        }
    }

    /// The host has changed its selection of events.
    pub(crate) fn configure(&mut self, configuration: AsynchronousEventConfiguration) {
        for event in Event::ALL {
            if !event.is_asked_for(configuration) {
                self.raised &= !event.bit();
            }
        }
    }

    /// The event to report now, if there is a request.
    fn due(&self) -> Option<Event> {
        if self.raised == 0 {
            return None;
        }
        let is_due = |event: &Event| {
            let told = self.told[usize::from(event.event_type().0)];
            self.raised & event.bit() != 0 && told.is_none()
        };
        Event::ALL.into_iter().find(is_due)
    }

    /// Whether a request can be completed now.
    pub(crate) fn has_next(&self) -> bool {
        !self.requests.is_empty() && self.due().is_some()
    }

    /// The request to complete now, the oldest, and its Dword 0.
    pub(crate) fn next(&mut self) -> Option<(u16, u32)> {
        let event = self.due()?;
        let cid = self.requests.pop_at(0)?;
        self.raised &= !event.bit();
        self.told[usize::from(event.event_type().0)] = Some(event);
        let dw0 = EventDw0::new()
            .with_aet(event.event_type())
            .with_aei(event.information())
            .with_lid(event.page());
        Some((cid, dw0.into()))
    }

    /// The host has read a log page with Retain Asynchronous Event cleared: the events that the
    /// page describes are cleared, reported or not.
    pub(crate) fn clear(&mut self, page: LogPageId) {
        for event in Event::ALL.into_iter().filter(|event| event.page() == page) {
            self.raised &= !event.bit();
        }
        for told in &mut self.told {
            if told.is_some_and(|event| event.page() == page) {
                *told = None;
            }
        }
    }

    /// The pending events, and for each type the event that was reported last, plus one.
    pub(crate) fn saved(&self) -> (u32, [u8; TYPES]) {
        let told = self
            .told
            .map(|told| told.map_or(0, |event| event as u8 + 1));
        (self.raised.into(), told)
    }

    /// Those of a process that died, without its requests. Numbers of no event are dropped.
    pub(crate) fn restore((raised, told): (u32, [u8; TYPES])) -> Self {
        let known = Event::ALL.iter().fold(0, |all, event| all | event.bit());
        let event = |number: u8| {
            Event::ALL
                .into_iter()
                .find(|event| *event as u8 + 1 == number)
        };
        Events {
            requests: ArrayVec::new(),
            raised: raised as u16 & known,
            told: told.map(event),
        }
    }

    /// Whether an event waits to be reported, or to be read about.
    pub(crate) fn has(&self, event: Event) -> bool {
        self.raised & event.bit() != 0 || self.told.contains(&Some(event))
    }

    /// Command identifiers of the held requests, oldest first.
    pub(crate) fn held(&self) -> &[u16] {
        &self.requests
    }
}

#[cfg(test)]
mod tests {
    use nvme_spec::log::LogPageId;

    use super::{AsynchronousEventConfiguration, Event, Events, REQUESTS};

    /// Everything is asked for.
    fn all() -> AsynchronousEventConfiguration {
        AsynchronousEventConfiguration::from(!0)
    }

    #[test]
    fn told_in_order_and_masked_until_the_log_is_read() {
        let mut events = Events::default();
        events.raise(Event::NamespaceChanged, all());
        assert_eq!(events.next(), None, "nobody asked");
        assert!(events.hold(7) && events.hold(8) && events.hold(9));
        // Notice, log page 04h.
        assert_eq!(events.next(), Some((7, 0x0004_0002)));
        events.raise(Event::NamespaceChanged, all());
        assert_eq!(events.next(), None, "masked");
        // Error status: invalid doorbell write value, log page 01h. Another type is not masked.
        events.raise(Event::InvalidDoorbellValue, all());
        assert_eq!(events.next(), Some((8, 0x0001_0100)));
        events.clear(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST);
        assert_eq!(
            events.next(),
            None,
            "reading the list told the host all of it"
        );
        events.raise(Event::NamespaceChanged, all());
        assert_eq!(events.next(), Some((9, 0x0004_0002)));
    }

    #[test]
    fn an_event_that_happens_twice_is_told_once() {
        let mut events = Events::default();
        events.raise(Event::TemperatureThreshold, all());
        events.raise(Event::TemperatureThreshold, all());
        assert!(events.hold(1) && events.hold(2));
        assert_eq!(events.next(), Some((1, 0x0002_0101)));
        assert_eq!(events.next(), None);
        assert_eq!(events.held(), [2]);
    }

    #[test]
    fn what_was_not_asked_for_is_not_noted() {
        let mut events = Events::default();
        assert!(events.hold(1) && events.hold(2));
        let none = AsynchronousEventConfiguration::new();
        events.raise(Event::TemperatureThreshold, none);
        events.raise(Event::NamespaceChanged, none);
        assert!(!events.has_next());
        // Critical warning bit 1 is the temperature, bit 8 of the feature the namespaces.
        events.raise(Event::TemperatureThreshold, 0xfd.into());
        events.raise(Event::NamespaceChanged, 0xfeff.into());
        assert_eq!(events.next(), None);
        // Errors are reported whatever the event configuration says.
        events.raise(Event::InvalidDoorbellRegister, none);
        assert_eq!(events.next(), Some((1, 0x0001_0000)));
        // An event that was raised and is not asked for any more is forgotten.
        events.raise(Event::NamespaceChanged, (1 << 8).into());
        events.configure(none);
        assert_eq!(events.next(), None);
        events.raise(Event::TemperatureThreshold, (1 << 1).into());
        events.configure((1 << 1).into());
        assert_eq!(events.next(), Some((2, 0x0002_0101)));
    }

    #[test]
    fn requests_are_limited_and_can_be_let_go() {
        let mut events = Events::default();
        for cid in 0..REQUESTS as u16 {
            assert!(events.hold(cid));
        }
        assert!(!events.hold(99));
        assert!(events.release(1) && !events.release(1));
        assert!(events.hold(99));
        assert_eq!(events.held(), [0, 2, 3, 99]);
    }
}
