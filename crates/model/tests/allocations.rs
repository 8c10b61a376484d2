//! Once it is warm, a model takes no memory for a command.

use model::preset::preset;
use model::{
    Admission, CompoundRule, FlashExtras, KvKind, KvOp, KvParameters, Model, Op, Parameters,
    Timing, ZoneOp,
};

/// Numbers from a seed (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(end)) >> 64) as u64
    }
}

fn parameters(name: &str, size: u64) -> Parameters {
    let preset = preset(name).expect("a preset that is there");
    preset.parameters(size, None).expect("a size that will do")
}

/// Keeps `depth` commands in flight until `count` were submitted.
fn drive(model: &mut Model, depth: usize, count: u64, mut next: impl FnMut(u64) -> Op<'static>) {
    let mut done = Vec::with_capacity(depth);
    let (mut now, mut under_way) = (0, 0);
    for id in 0..count {
        let op = next(id);
        while under_way == depth || model.submit(now, id, &op) == Admission::Stall {
            now = model.next_event().expect("commands are under way");
            model.advance(now, &mut done);
            under_way -= done.len();
            done.clear();
        }
        under_way += 1;
    }
    model.advance(u64::MAX / 2, &mut done);
}

/// Drives a model twice in the same way, and counts what the second time allocates.
fn allocations(
    mut model: Model,
    depth: usize,
    next: impl Fn(&mut Random, u64) -> Op<'static>,
) -> u64 {
    let mut again = |seed| {
        let mut random = Random(seed);
        drive(&mut model, depth, 30_000, |id| next(&mut random, id));
    };
    again(1);
    // All but the list of what is done, which is the test's own.
    allocation_counter::measure(|| again(1)).count_total - 1
}

#[test]
fn nothing_is_allocated_for_a_command() {
    let model = |parameters: &Parameters| Model::new(parameters).expect("a size that will do");
    let page = |random: &mut Random, size: u64| random.below(size / 4096) * 4096;
    let mix = |random: &mut Random, size: u64| match random.below(10) {
        0 => Op::Flush,
        1..4 => Op::Read {
            offset: page(random, size),
            len: 65_536,
        },
        _ => Op::Write {
            offset: page(random, size),
            len: 4096,
            fua: false,
        },
    };

    let optane = parameters("optane-p4800x", 1 << 30);
    assert_eq!(
        allocations(model(&optane), 64, |random, _| mix(random, 1 << 30)),
        0
    );

    let size = 256 << 20;
    let Parameters::Flash(mut flash) = parameters("samsung-970-pro", size) else {
        panic!("the preset is one of flash");
    };
    flash.block_bytes = 8 * u64::from(flash.oneshot_bytes);
    let mut everything = flash.clone();
    everything.extras = FlashExtras {
        program_jitter_permille: 100,
        suspend_limit: 5,
        slc_cache_bytes: 16 << 20,
        slc_program_ns: 100_000,
        slc_idle_ns: 100_000,
        map_cache_pages: 4,
        ..FlashExtras::default()
    };
    for flash in [flash, everything] {
        let mut used = model(&Parameters::Flash(flash));
        if let Model::Flash(flash) = &mut used {
            flash.precondition(1);
        }
        assert_eq!(allocations(used, 64, |random, _| mix(random, size)), 0);
    }

    let Parameters::Kv(kv) = parameters("samsung-kvssd", 1 << 30) else {
        panic!("the preset is one of key-value");
    };
    let in_order = Parameters::Kv(KvParameters {
        compound: CompoundRule::InOrder,
        ..kv
    });
    const OPS: [KvOp; 8] = [KvOp {
        kind: KvKind::Store,
        hash: 77,
        len: 4096,
    }; 8];
    assert_eq!(
        allocations(model(&in_order), 64, |_, _| Op::Compound(&OPS)),
        0
    );

    // Zone after zone, each reset before it is written.
    let zones = parameters("zns-prototype", 4 << 30);
    let Parameters::Zones(shape) = &zones else {
        panic!("the preset is one of zones");
    };
    let (zone_size, count) = (shape.zone_size_bytes, (4 << 30) / shape.zone_size_bytes);
    let writes = shape.zone_capacity_bytes / 65_536;
    let append = |_: &mut Random, id: u64| {
        let zone = id / (writes + 1) % count;
        match id % (writes + 1) {
            0 => Op::Zone(ZoneOp::Reset { zone: zone as u32 }),
            index => Op::Write {
                offset: zone * zone_size + (index - 1) * 65_536,
                len: 65_536,
                fua: false,
            },
        }
    };
    assert_eq!(allocations(model(&zones), 64, append), 0);
}
