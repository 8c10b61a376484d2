//! DMA_LOGGING_START, DMA_LOGGING_STOP and DMA_LOGGING_REPORT: a client copies the host's memory
//! while the device works.
//!
//! A log belongs to the host's memory map: it ends with STOP and with the session. A DEVICE_RESET
//! does not end it, as it ends no DMA_MAP. A process that continues after another one has no log,
//! so that a REPORT fails: the client starts again, and copies everything.
//!
//! The reply to a START comes when no command is in flight that was issued before: such a command
//! writes without a mark.

use controller::Controller;
use memory::guest::written::LogError;
use memory::{Iova, PAGE};
use rustix::io::Errno;
use vfio_user::MAX_DATA_XFER_LEN;
use vfio_user::message::{
    DeviceFeature, FeatureFlags, LoggingControl, LoggingRange, LoggingReport,
};

use super::Answer;
use super::memory_map::MemoryMap;
use super::waiting::Until;

/// Maximum number of bytes of a report's bitmap: 32 GiB with pages of 4 KiB.
const MAX_BITMAP_LEN: usize = MAX_DATA_XFER_LEN;

/// Whether a feature is one of these.
pub(super) fn is_logging(index: FeatureFlags) -> bool {
    matches!(
        index,
        FeatureFlags::DMA_LOGGING_START
            | FeatureFlags::DMA_LOGGING_STOP
            | FeatureFlags::DMA_LOGGING_REPORT
    )
}

/// DEVICE_FEATURE with one of these features.
pub(super) fn feature(
    body: &[u8],
    memory: &mut MemoryMap,
    controller: &mut Controller,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    let (request, data) = DeviceFeature::parse_with_data(body).map_err(|_| Errno::INVAL)?;
    let index = FeatureFlags(request.flags.index());
    let asked = request.flags.difference(index);
    let use_of = match index {
        FeatureFlags::DMA_LOGGING_REPORT => FeatureFlags::GET,
        _ => FeatureFlags::SET,
    };
    if asked == FeatureFlags::PROBE | use_of {
        head(&request, DeviceFeature::LEN, out)?;
        return Ok(Answer::Reply);
    }
    if asked != use_of {
        return Err(Errno::INVAL);
    }
    match index {
        FeatureFlags::DMA_LOGGING_START => start(&request, data, memory, controller, out),
        FeatureFlags::DMA_LOGGING_STOP => {
            head(&request, DeviceFeature::LEN, out)?;
            memory.stop_log(None, controller);
            Ok(Answer::Reply)
        }
        _ => report(&request, data, memory, out),
    }
}

/// The head of a reply, where the client takes `len` bytes.
fn head(request: &DeviceFeature, len: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
    if (request.argsz as usize) < len {
        return Err(Errno::INVAL);
    }
    let argsz = u32::try_from(len).map_err(|_| Errno::INVAL)?;
    DeviceFeature {
        argsz,
        flags: request.flags,
    }
    .encode(out);
    Ok(())
}

/// Pages that can be logged, and be reported together.
fn is_page(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= PAGE
}

fn start(
    request: &DeviceFeature,
    data: &[u8],
    memory: &mut MemoryMap,
    controller: &mut Controller,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    let control = LoggingControl::parse(data).map_err(|_| Errno::INVAL)?;
    let ranges = &data[LoggingControl::LEN..];
    let (count, unit) = (control.num_ranges as usize, control.page_size);
    if count > memory::guest::written::MAX_LOG_RANGES {
        return Err(Errno::TOOBIG);
    }
    if !is_page(unit) || ranges.len() != count * LoggingRange::LEN {
        return Err(Errno::INVAL);
    }
    head(request, DeviceFeature::LEN + data.len(), out)?;
    // The pages of a log are those of the device, whatever the client would like.
    LoggingControl {
        page_size: PAGE,
        ..control
    }
    .encode(out);
    out.extend_from_slice(ranges);
    let mut wanted = Vec::with_capacity(count);
    for range in ranges.chunks(LoggingRange::LEN) {
        let LoggingRange { iova, length } = LoggingRange::parse(range).map_err(|_| Errno::INVAL)?;
        if !(iova | length).is_multiple_of(unit) {
            return Err(Errno::INVAL);
        }
        wanted.push((Iova(iova), length));
    }
    let epoch = memory
        .start_log(&wanted, controller)
        .map_err(|error| errno_of(&error))?;
    Ok(Answer::Later(Until::Logging {
        epoch,
        reply: std::mem::take(out),
    }))
}

fn report(
    request: &DeviceFeature,
    data: &[u8],
    memory: &MemoryMap,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    let report = LoggingReport::parse(data).map_err(|_| Errno::INVAL)?;
    let LoggingReport {
        iova,
        length,
        page_size,
    } = report;
    let log = memory.log().map_err(|error| errno_of(&error))?;
    if !is_page(page_size) || length == 0 || !(iova | length).is_multiple_of(page_size) {
        return Err(Errno::INVAL);
    }
    let words = (length / page_size).div_ceil(64);
    if words > (MAX_BITMAP_LEN / 8) as u64 {
        return Err(Errno::TOOBIG);
    }
    let len = DeviceFeature::LEN + LoggingReport::LEN + words as usize * 8;
    // Everything is checked before a mark is forgotten.
    head(request, len, out)?;
    let mut bitmap = vec![0; words as usize];
    log.take(Iova(iova), length, page_size, &mut bitmap)
        .map_err(|error| errno_of(&error))?;
    report.encode(out);
    out.extend(bitmap.into_iter().flat_map(u64::to_le_bytes));
    Ok(Answer::Reply)
}

fn errno_of(error: &LogError) -> Errno {
    tracing::debug!("rejected a host's DMA logging: {error}");
    match error {
        LogError::Started => Errno::BUSY,
        LogError::TooMany => Errno::TOOBIG,
        LogError::TooLarge => Errno::NOSPC,
        LogError::Wraps => Errno::OVERFLOW,
        LogError::System(_) => Errno::NOMEM,
        LogError::Off
        | LogError::Empty
        | LogError::Misaligned
        | LogError::Overlaps
        | LogError::Outside => Errno::INVAL,
    }
}
