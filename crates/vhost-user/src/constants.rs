//! Numbers of messages.

use std::fmt;

/// What a front end asks for (`VHOST_USER_*`). Open: any number can be held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Request(pub u32);

macro_rules! requests {
    ($($name:ident = $value:literal;)*) => {
        #[expect(missing_docs, reason = "the specification's names")]
        impl Request {
            $(pub const $name: Request = Request($value);)*

            /// The specification's name, without its prefix; `None` for an unknown number.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

requests! {
    GET_FEATURES = 1;
    SET_FEATURES = 2;
    SET_OWNER = 3;
    RESET_OWNER = 4;
    SET_MEM_TABLE = 5;
    SET_VRING_NUM = 8;
    SET_VRING_ADDR = 9;
    SET_VRING_BASE = 10;
    GET_VRING_BASE = 11;
    SET_VRING_KICK = 12;
    SET_VRING_CALL = 13;
    SET_VRING_ERR = 14;
    GET_PROTOCOL_FEATURES = 15;
    SET_PROTOCOL_FEATURES = 16;
    GET_QUEUE_NUM = 17;
    SET_VRING_ENABLE = 18;
    SET_BACKEND_REQ_FD = 21;
    GET_CONFIG = 24;
    SET_CONFIG = 25;
    GET_INFLIGHT_FD = 31;
    SET_INFLIGHT_FD = 32;
    RESET_DEVICE = 34;
    GET_MAX_MEM_SLOTS = 36;
    ADD_MEM_REG = 37;
    REM_MEM_REG = 38;
    SET_STATUS = 39;
    GET_STATUS = 40;
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "message {}", self.0),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a back end asks for (`VHOST_USER_BACKEND_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendRequest(pub u32);

impl BackendRequest {
    /// The configuration space has changed.
    pub const CONFIG_CHANGE_MSG: Self = Self(2);
}
