//! Geometry of a drive: sizes and numbers of its pages, wordlines, blocks and lines.

use crate::error::ParameterError;
use crate::parameter::Shape;
use crate::parameters::{FlashParameters, Parameters};
use crate::units::PAGE_LEN;

/// The shape of one die, in pages of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieShape {
    /// Pages of a flash page, the unit of a sense.
    pub flash_page: u32,
    /// Pages of a wordline, the unit of a program: a multiple of `flash_page`.
    pub wordline: u32,
    /// Wordlines of a block.
    pub rows: u32,
    /// Number of kinds of flash pages, 1 to 4.
    pub cell_bits: u32,
    /// Planes of the die: consecutive flash pages are in different ones.
    pub planes: u32,
}

/// Position of a flash page on its die, and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlashPage {
    pub(crate) plane: u32,
    pub(crate) cell: usize,
}

impl DieShape {
    /// Shape of a die for checked parameters.
    pub(crate) fn new(parameters: &FlashParameters) -> Self {
        let rows = parameters.block_bytes / u64::from(parameters.oneshot_bytes);
        Self {
            flash_page: parameters.flash_page_bytes / PAGE_LEN,
            wordline: parameters.oneshot_bytes / PAGE_LEN,
            rows: u32::try_from(rows)
                .expect("a block is at most 2^40 bytes, and a wordline at least 2^12"),
            cell_bits: u32::from(parameters.cell_bits),
            planes: parameters.extras.planes,
        }
    }

    /// The flash page that holds page `page` of wordline `row` of a block.
    pub(crate) fn holding(&self, row: u64, page: u32) -> FlashPage {
        self.flash_page_at(
            row * u64::from(self.wordline / self.flash_page) + u64::from(page / self.flash_page),
        )
    }

    /// The flash page `index` of a block.
    pub(crate) fn flash_page_at(&self, index: u64) -> FlashPage {
        let (plane, of_plane) = match self.planes {
            1 => (0, index),
            planes => (index % u64::from(planes), index / u64::from(planes)),
        };
        FlashPage {
            plane: u32::try_from(plane).expect("below the number of planes"),
            cell: usize::try_from(of_plane % u64::from(self.cell_bits)).expect("below 4"),
        }
    }
}

/// Geometry of a drive with an FTL. All partitions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Shape of each die.
    pub die: DieShape,
    /// Number of independent FTLs.
    pub partitions: u32,
    /// Channels of each partition.
    pub channels: u32,
    /// Dies of each partition.
    pub dies: u32,
    /// Pages of a line: a block on every die of a partition.
    pub line: u32,
    /// Lines of each partition.
    pub lines: u32,
    /// Logical pages of each partition.
    pub logical: u32,
}

impl Geometry {
    /// Computes the geometry of a drive with an FTL.
    ///
    /// # Errors
    ///
    /// Those of [`Parameters::check`], and more pages in a partition than a map can have.
    pub fn new(parameters: &FlashParameters) -> Result<Self, ParameterError> {
        Parameters::Flash(parameters.clone()).check()?;
        let shape = Shape::of(parameters)?;
        let pages = shape.lines.saturating_mul(shape.pages_per_line);
        if pages > u64::from(u32::MAX) {
            return Err(ParameterError::TooManyPages { pages });
        }
        let counted = |count: u64| u32::try_from(count).expect("no more than the pages");
        Ok(Self {
            die: DieShape::new(parameters),
            partitions: parameters.partitions,
            channels: parameters.channels / parameters.partitions,
            dies: counted(shape.dies_per_partition),
            line: counted(shape.pages_per_line),
            lines: counted(shape.lines),
            logical: counted(shape.logical_pages),
        })
    }

    /// The die of a partition's place, and the flash page that contains it.
    pub(super) fn position(&self, place: u32) -> (u32, FlashPage) {
        let page = place % self.line;
        let wordline = page / self.die.wordline;
        let row = u64::from(wordline / self.dies);
        let flash_page = self.die.holding(row, page % self.die.wordline);
        (wordline % self.dies, flash_page)
    }

    /// Logical pages of the whole drive.
    pub fn pages(&self) -> u64 {
        u64::from(self.logical) * u64::from(self.partitions)
    }

    /// Physical pages of each partition.
    pub fn physical(&self) -> u32 {
        self.lines * self.line // checked when it was made
    }
}
