use api::{LineCells, MOST_CELLS, MapNamespace};
use media::{Asked, Medium, MediumKind, MediumSpec, Stalls, TimingLook, ZoneSpec};
use model::preset::preset;
use model::{Model, Op, Timing as _};

use super::*;

/// A small 970 PRO whose first pages were written sequentially.
fn written(pages: u64) -> Model {
    let preset = preset("samsung-970-pro").unwrap();
    let mut parameters = preset.parameters(256 << 20, None).unwrap();
    parameters
        .set("block", "128KiB", model::Moment::Creation)
        .unwrap();
    let mut model = Model::new(&parameters).unwrap();
    let mut done = Vec::new();
    let (mut now, mut page) = (0, 0);
    while page < pages {
        let write = Op::Write {
            offset: page * 4096,
            len: 4096,
            fua: false,
        };
        if model.submit(now, page, &write) == model::Admission::Accepted {
            page += 1;
        }
        now += 1_000_000;
        model.advance(now, &mut done);
        done.clear();
    }
    model
}

fn look(model: &Model) -> Look<'_> {
    Look {
        timing: Some(TimingLook {
            model,
            asked: Asked::default(),
            stalls: Stalls::default(),
        }),
        ..Look::default()
    }
}

/// The result when capturing `slice` lines or zones at a time, and the number of continuations.
fn in_slices(look: &Look<'_>, wanted: Wanted, slice: u32) -> (Taken, u32) {
    let mut taking = Taking::new(wanted);
    for turn in 1.. {
        let mut left = slice;
        if let Some(taken) = taking.go_on(look, &mut left) {
            return (taken, turn);
        }
        assert_eq!(left, 0, "it stops where no more may be taken");
    }
    unreachable!("it ends")
}

#[test]
fn a_map_is_the_same_however_it_is_taken_and_has_every_page() {
    const PAGES: u64 = 10_000;
    let model = written(PAGES);
    let look = look(&model);
    let wanted = Wanted {
        cells: Some(MOST_CELLS),
        zones: (0, 0),
    };
    let whole = Taking::take(wanted, &look);
    let map = whole.flash_map.unwrap();
    let shape = map.geometry;
    let lines = shape.partitions * shape.lines_per_partition;
    let (sliced, turns) = in_slices(&look, wanted, 7);
    assert_eq!(sliced.flash_map.as_ref(), Some(&map));
    assert!(turns >= lines / 7 && turns <= lines / 7 + 1, "{turns}");

    // one line per cell; one 4096-byte page per write, and lines fill in order
    assert_eq!(map.lines_per_cell, 1);
    let cells = || map.partitions.iter().map(|p| &p.cells);
    let sum = |of: fn(&LineCells) -> &Vec<u32>| -> u32 { cells().flat_map(of).sum() };
    assert_eq!(cells().flat_map(|c| &c.valid_pages).sum::<u64>(), PAGES);
    let full = sum(|c| &c.full);
    assert_eq!(
        u64::from(full),
        PAGES / 4 / u64::from(shape.pages_per_line) * 4
    );
    assert_eq!(sum(|c| &c.open), 4);
    assert_eq!(sum(|c| &c.free), lines - full - 4);
    // no page was rewritten, so every full line is fully valid
    let mut by_valid = vec![0; 10];
    by_valid[9] = u64::from(full);
    assert_eq!(map.full_lines_by_valid, by_valid);
    let flash = whole.model.unwrap().flash.unwrap();
    assert_eq!((flash.host_pages, flash.collected_pages), (PAGES, 0));
    assert_eq!(flash.valid_pages, PAGES);
    assert_eq!((flash.wear.least, flash.wear.most), (0, 0));
    let open = &map.partitions[0].open_lines[0];
    assert_eq!(open.writer, "host");
    let taken = PAGES / 4 % u64::from(shape.pages_per_line);
    assert_eq!(u64::from(open.taken_pages), taken);
}

#[test]
fn a_map_has_no_more_cells_than_were_asked_for() {
    let model = written(5_000);
    let look = look(&model);
    let fine = Taking::take(
        Wanted {
            cells: Some(MOST_CELLS),
            zones: (0, 0),
        },
        &look,
    );
    let fine = fine.flash_map.unwrap();
    for cells in [1, 8, 13, 100] {
        let wanted = Wanted {
            cells: Some(cells),
            zones: (0, 0),
        };
        let map = Taking::take(wanted, &look).flash_map.unwrap();
        let partitions = map.geometry.partitions;
        let all: usize = map.partitions.iter().map(|p| p.cells.full.len()).sum();
        assert!(all as u32 <= cells.max(partitions), "{all} of {cells}");
        // each line is in exactly one of them
        for (coarse, fine) in map.partitions.iter().zip(&fine.partitions) {
            let coarse_full = coarse.cells.full.iter().sum::<u32>();
            assert_eq!(coarse_full, fine.cells.full.iter().sum::<u32>());
            let pages = coarse.cells.valid_pages.iter().sum::<u64>();
            assert_eq!(pages, fine.cells.valid_pages.iter().sum::<u64>());
            let lines = map.lines_per_cell as usize;
            let first: u64 = fine.cells.valid_pages.iter().take(lines).sum();
            assert_eq!(coarse.cells.valid_pages[0], first);
        }
    }
}

#[test]
fn zones_are_told_from_any_one_on_and_counted_in_cells() {
    let spec = MediumSpec {
        kind: MediumKind::Zoned {
            of: Box::new(MediumKind::Null { size: 10 << 20 }),
            zones: ZoneSpec {
                zone_size: 1 << 20,
                zone_capacity: 768 << 10,
                max_open: 3,
                max_active: 4,
                descriptor_extension: 0,
                append_limit: 0,
                random: None,
            },
        },
    };
    let medium = Medium::open(&spec).unwrap();
    medium.lose_zone(4, media::ZoneLoss::ReadOnly).unwrap();
    medium.lose_zone(9, media::ZoneLoss::Offline).unwrap();
    let wanted = Wanted {
        cells: Some(4),
        zones: (8, 5),
    };
    let taken = medium.look(|look| {
        let (sliced, turns) = in_slices(look, wanted, 4);
        assert_eq!(turns, 3);
        sliced
    });
    let map = taken.unwrap().zone_map.unwrap();
    assert_eq!(map.zones_per_cell, 3);
    assert_eq!(map.cells.empty, [3, 2, 3, 0]);
    assert_eq!(map.cells.lost, [0, 1, 0, 1]);
    assert_eq!((map.all.max_open, map.all.max_active), (3, 4));
    let counted = |state: &str| map.all.states[state];
    assert_eq!(["empty", "read-only", "offline"].map(counted), [8, 1, 1]);
    let zones: Vec<_> = map.list.iter().map(|z| (z.zone, &*z.state)).collect();
    assert_eq!(zones, [(8, "empty"), (9, "offline")]);
    assert_eq!(map.list[0].start_bytes, 8 << 20);

    // a namespace from the third zone on, with blocks of 4096 bytes
    let mut map = map;
    map.list[0].written_bytes = 8192;
    map.place(&[MapNamespace {
        name: "n".into(),
        start_bytes: 2 << 20,
        bytes: 8 << 20,
        lba_size: Some(4096),
    }]);
    let [open, lost] = [&map.list[0], &map.list[1]];
    assert_eq!(
        (open.start_lba, open.write_pointer),
        (Some(1536), Some(1538))
    );
    assert_eq!((lost.start_lba, lost.write_pointer), (Some(1792), None));
    assert_eq!(open.namespace.as_deref(), Some("n"));
}
