//! Why a connection cannot go on.

/// A client has broken a rule after which the next bytes mean nothing, or a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Client flags that were not offered.
    #[error("the client has set flags that were not offered: {0:#x}")]
    ClientFlags(u32),
    /// An option does not begin with `IHAVEOPT`.
    #[error("an option begins with {0:#018x}")]
    OptionMagic(u64),
    /// A client without fixed newstyle sends another option than `NBD_OPT_EXPORT_NAME`.
    #[error("the client sends option {0} without NBD_FLAG_C_FIXED_NEWSTYLE")]
    NotFixed(u32),
    /// An option is longer than [`MAX_SKIPPED`](crate::MAX_SKIPPED).
    #[error("an option has {0} bytes")]
    OptionLength(u32),
    /// Too many options.
    #[error("the client goes on with options, and chooses no export")]
    OptionFlood,
    /// The export of `NBD_OPT_EXPORT_NAME`, which has no reply for errors, is unknown or needs
    /// TLS.
    #[error("there is no such export, or it needs TLS")]
    ExportName,
    /// Bytes in clear behind `NBD_OPT_STARTTLS`, which could pass for a part of the encrypted
    /// session.
    #[error("the client sends bytes in clear behind NBD_OPT_STARTTLS")]
    ClearBytes,
    /// A request does not begin with its magic number.
    #[error("a request begins with {0:#010x}")]
    RequestMagic(u32),
    /// A request has more than [`MAX_PAYLOAD`](crate::MAX_PAYLOAD) bytes of data.
    #[error("a request has {0} bytes of data")]
    RequestLength(u64),
}

impl Fault {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ClientFlags(_) => "client-flags",
            Self::OptionMagic(_) => "option-magic",
            Self::NotFixed(_) => "not-fixed",
            Self::OptionLength(_) => "option-length",
            Self::OptionFlood => "option-flood",
            Self::ExportName => "export-name",
            Self::ClearBytes => "clear-bytes",
            Self::RequestMagic(_) => "request-magic",
            Self::RequestLength(_) => "request-length",
        }
    }
}
