//! Values that follow from the size of a drive: lines, pages, wordlines.

use crate::units::PAGE_BYTES;
use crate::{FlashParameters, InvalidParameter};

/// Fewest lines of a partition: with fewer, collection is nothing like a drive's.
pub const MIN_LINES: u64 = 64;

/// Lines of a partition that data of hosts may not need, beyond those kept free for collection: the
/// two open ones, and what collection gains at least.
const SPARE_LINES: u64 = 3;

/// The geometry of a conventional drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Dies of the whole drive.
    pub dies: u64,
    /// Dies of one partition.
    pub dies_per_partition: u64,
    /// Pages of 4 KiB in a block of one die.
    pub pages_per_block: u64,
    /// Pages of a line: one block on every die of a partition.
    pub pages_per_line: u64,
    /// Lines of a partition: blocks of each die.
    pub lines: u64,
    /// Pages of a partition that hosts see.
    pub logical_pages: u64,
    /// Lines that the over-provisioning asks for, before rounding up to a whole one, in
    /// thousandths.
    pub lines_asked_thousandths: u64,
    /// Lines that must be there beyond the data, so that collection always finds room.
    pub spare_lines: u64,
}

impl Shape {
    /// The shape of a drive: pages per block and dies stay, the blocks of a die follow from the
    /// size.
    ///
    /// # Errors
    /// The parameters do not fit each other, or the drive is too small; the error names the least
    /// size.
    pub fn of(flash: &FlashParameters) -> Result<Shape, InvalidParameter> {
        let shape = Shape::unchecked(flash)?;
        if shape.is_large_enough() {
            return Ok(shape);
        }
        let op = u64::from(flash.overprovisioning_permille);
        if op == 0 {
            return Err(unfit(
                "overprovisioning = \"0%\": there is no spare block for collection; write at least 1%",
            ));
        }
        let least = least_size(flash, &shape)?;
        Err(unfit(format!(
            "a drive of {} has {} lines of {} in each partition, {} of them for its data: collection needs {MIN_LINES} lines, and {} beyond the data; write a size of at least {}",
            size(flash.size_bytes),
            shape.lines,
            size(shape.pages_per_line * PAGE_BYTES),
            shape.logical_pages.div_ceil(shape.pages_per_line),
            shape.spare_lines,
            size(least)
        )))
    }

    fn unchecked(flash: &FlashParameters) -> Result<Shape, InvalidParameter> {
        let partitions = u64::from(flash.partitions.max(1));
        let channels = u64::from(flash.channels);
        let dies = channels * u64::from(flash.dies_per_channel);
        let dies_per_partition = dies / partitions;
        let pages_per_block = flash.block_bytes / PAGE_BYTES;
        let too_large = || unfit("a line of so many dies and pages is more than can be counted");
        let pages_per_line = dies_per_partition
            .checked_mul(pages_per_block)
            .filter(|pages| (1..=u64::from(u32::MAX)).contains(pages))
            .ok_or_else(too_large)?;
        let logical_pages = flash.size_bytes.div_ceil(PAGE_BYTES).div_ceil(partitions);
        let op = 1000 + u128::from(flash.overprovisioning_permille);
        let asked = u128::from(logical_pages) * op;
        let per_line = u128::from(pages_per_line);
        let count = |value: u128| u64::try_from(value).map_err(|_| too_large());
        Ok(Shape {
            dies,
            dies_per_partition,
            pages_per_block,
            pages_per_line,
            lines: count(asked.div_ceil(1000 * per_line))?,
            logical_pages,
            lines_asked_thousandths: count(asked / per_line)?,
            spare_lines: u64::from(flash.collect_below) + SPARE_LINES,
        })
    }

    fn is_large_enough(&self) -> bool {
        let pages = u128::from(self.lines) * u128::from(self.pages_per_line);
        let spare = pages.saturating_sub(u128::from(self.logical_pages));
        self.lines >= MIN_LINES
            && spare >= u128::from(self.spare_lines) * u128::from(self.pages_per_line)
    }
}

/// The least size, in whole MiB, from which on every larger one will do as well.
fn least_size(flash: &FlashParameters, shape: &Shape) -> Result<u64, InvalidParameter> {
    const MIB: u64 = 1 << 20;
    let op = u128::from(flash.overprovisioning_permille);
    let per_line = u128::from(shape.pages_per_line);
    // lines >= MIN_LINES from so many logical pages on, and spare lines from so many.
    let for_lines = (u128::from(MIN_LINES) * 1000 * per_line).div_ceil(1000 + op);
    let for_spare = (u128::from(shape.spare_lines) * 1000 * per_line).div_ceil(op.max(1));
    let pages = for_lines.max(for_spare) * u128::from(flash.partitions.max(1));
    let bytes = pages * u128::from(PAGE_BYTES);
    u64::try_from(bytes)
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(MIB))
        .ok_or_else(|| unfit("a drive that has 64 lines of that size is too large"))
}

pub(super) fn unfit(what: impl Into<String>) -> InvalidParameter {
    InvalidParameter::Unfit(what.into())
}

pub(super) fn size(bytes: u64) -> String {
    let unit = super::Unit::Size;
    super::Value { unit, raw: bytes }.to_string()
}
