//! Asynchronous events (Base 2.1, 5.1.2): what happened, and the requests that wait to tell it.
//!
//! A request is held without a place in the completion queue; it takes one only when there is something to tell.
//! After an event of a type was told, further ones of that type wait until the host has read the type's log page
//! with Retain Asynchronous Event cleared. Bounded: one bit per kind of event, [`REQUESTS`] requests.

use arrayvec::ArrayVec;
use nvme_spec::event::{
    ErrorInformation, EventDw0, EventType, NoticeInformation, SmartHealthInformation,
};
use nvme_spec::log::LogPageId;

/// Requests that may be outstanding.
pub(crate) const REQUESTS: usize = 4;
/// AERL of Identify Controller, which is 0's based.
pub(crate) const AERL_Z: u8 = REQUESTS as u8 - 1;

/// Everything a controller here reports without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell of a queue that does not exist was written.
    InvalidDoorbellRegister,
    /// A doorbell was written with a value that no host may write.
    InvalidDoorbellValue,
    /// The composite temperature crossed a threshold.
    TemperatureThreshold,
    /// A namespace was attached, detached or changed.
    NamespaceChanged,
}

impl Event {
    fn kind(self) -> Kind {
        match self {
            Event::InvalidDoorbellRegister | Event::InvalidDoorbellValue => Kind::Error,
            Event::TemperatureThreshold => Kind::Smart,
            Event::NamespaceChanged => Kind::Notice,
        }
    }

    fn information(self) -> u8 {
        match self {
            Event::InvalidDoorbellRegister => {
                ErrorInformation::WRITE_TO_INVALID_DOORBELL_REGISTER.0
            }
            Event::InvalidDoorbellValue => ErrorInformation::INVALID_DOORBELL_WRITE_VALUE.0,
            Event::TemperatureThreshold => SmartHealthInformation::TEMPERATURE_THRESHOLD.0,
            Event::NamespaceChanged => NoticeInformation::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED.0,
        }
    }
}

/// Types of events with the log page that clears each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Error,
    Smart,
    Notice,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Error, Kind::Smart, Kind::Notice];

    fn event_type(self) -> EventType {
        match self {
            Kind::Error => EventType::ERROR,
            Kind::Smart => EventType::SMART_HEALTH,
            Kind::Notice => EventType::NOTICE,
        }
    }

    fn log_page(self) -> LogPageId {
        match self {
            Kind::Error => LogPageId::ERROR_INFORMATION,
            Kind::Smart => LogPageId::SMART_HEALTH_INFORMATION,
            Kind::Notice => LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
        }
    }
}

/// Events of one type: which are to be told, and whether the last one told was not cleared yet.
#[derive(Clone, Copy, Debug, Default)]
struct OfKind {
    /// One bit per Asynchronous Event Information.
    raised: u8,
    masked: bool,
}

/// Held requests and raised events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    requests: ArrayVec<u16, REQUESTS>,
    kinds: [OfKind; 3],
}

impl Events {
    /// Holds a request by its command identifier; `false` where [`REQUESTS`] are held already.
    pub(crate) fn hold(&mut self, cid: u16) -> bool {
        self.requests.try_push(cid).is_ok()
    }

    /// Lets go of a held request, which was aborted; `false` where there is none with this identifier.
    pub(crate) fn release(&mut self, cid: u16) -> bool {
        match self.requests.iter().position(|held| *held == cid) {
            Some(index) => {
                self.requests.remove(index);
                true
            }
            None => false,
        }
    }

    /// Notes an event; told once however often it happens before it is told.
    pub(crate) fn raise(&mut self, event: Event) {
        self.kinds[event.kind() as usize].raised |= 1 << event.information();
    }

    /// Whether a request can be completed now.
    pub(crate) fn has_next(&self) -> bool {
        let told = |kind: &OfKind| kind.raised != 0 && !kind.masked;
        !self.requests.is_empty() && self.kinds.iter().any(told)
    }

    /// The request to complete now, the oldest, and its Dword 0.
    pub(crate) fn next(&mut self) -> Option<(u16, u32)> {
        if !self.has_next() {
            return None;
        }
        for kind in Kind::ALL {
            let state = &mut self.kinds[kind as usize];
            if state.raised == 0 || state.masked {
                continue;
            }
            let information = state.raised.trailing_zeros() as u8;
            state.raised &= !(1 << information);
            state.masked = true;
            let dw0 = EventDw0::new()
                .with_aet(kind.event_type())
                .with_aei(information)
                .with_lid(kind.log_page());
            return Some((self.requests.remove(0), dw0.into()));
        }
        None
    }

    /// The host has read a log page with Retain Asynchronous Event cleared: the events that the page tells about are
    /// cleared, told or not.
    pub(crate) fn clear(&mut self, page: LogPageId) {
        for kind in Kind::ALL {
            if kind.log_page() == page {
                self.kinds[kind as usize] = OfKind::default();
            }
        }
    }

    /// Command identifiers of the held requests, oldest first.
    pub(crate) fn held(&self) -> &[u16] {
        &self.requests
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Events, REQUESTS};
    use nvme_spec::log::LogPageId;

    #[test]
    fn told_in_order_and_masked_until_the_log_is_read() {
        let mut events = Events::default();
        events.raise(Event::NamespaceChanged);
        assert_eq!(events.next(), None, "nobody asked");
        assert!(events.hold(7) && events.hold(8) && events.hold(9));
        // Notice, log page 04h.
        assert_eq!(events.next(), Some((7, 0x0004_0002)));
        events.raise(Event::NamespaceChanged);
        assert_eq!(events.next(), None, "masked");
        // Error status: invalid doorbell write value, log page 01h. Another type is not masked.
        events.raise(Event::InvalidDoorbellValue);
        assert_eq!(events.next(), Some((8, 0x0001_0100)));
        events.clear(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST);
        assert_eq!(
            events.next(),
            None,
            "reading the list told the host all of it"
        );
        events.raise(Event::NamespaceChanged);
        assert_eq!(events.next(), Some((9, 0x0004_0002)));
    }

    #[test]
    fn an_event_that_happens_twice_is_told_once() {
        let mut events = Events::default();
        events.raise(Event::TemperatureThreshold);
        events.raise(Event::TemperatureThreshold);
        assert!(events.hold(1) && events.hold(2));
        assert_eq!(events.next(), Some((1, 0x0002_0101)));
        assert_eq!(events.next(), None);
        assert_eq!(events.held(), [2]);
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
