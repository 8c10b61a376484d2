//! When commands are done: what the oracle of the timing models notices.

use crate::mutants::{Mutation, Test, integration, unit};

/// Cases worked out by hand, of one kind of drive.
const fn by_hand(name: &'static str) -> Test {
    integration("tests-oracle", &["--test", "vectors"], name)
}

const NVM: Test = by_hand("nvm_by_hand");
const KEY_VALUE: Test = by_hand("key_value_by_hand");
const FLASH: Test = by_hand("flash_by_hand");
const ZONES: Test = by_hand("zones_by_hand");
const RANDOM: Test = by_hand("random_commands_as_the_oracle");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "model-gaps",
        guard: "a transfer takes the first gap that it fits in",
        file: "crates/model/src/server/mod.rs",
        from: "            if begin >= start.saturating_add(length) {\n                break;\n            }\n",
        to: "            let _ = begin;\n",
        test: FLASH,
    },
    Mutation {
        name: "model-carry",
        guard: "fractions of a nanosecond are carried on",
        file: "crates/model/src/server/mod.rs",
        from: "        self.0 = pace.add(start, cost);\n        self.0\n",
        to: "        let end = pace.add(start, cost);\n        self.0 = Exact { part: 0, ..end };\n        end\n",
        test: NVM,
    },
    Mutation {
        name: "model-order",
        guard: "what is done at one time comes out as it was submitted",
        file: "crates/model/src/pending.rs",
        from: "self.due.push(Reverse((at, turn.0, id)));",
        to: "self.due.push(Reverse((at, u64::MAX - turn.0, id)));",
        test: NVM,
    },
    Mutation {
        name: "model-delete",
        guard: "a delete is a write",
        file: "crates/model/src/kv/mod.rs",
        from: "KvKind::Delete => (&mut rules.write, &mut unit.write, 0, rules.delete),",
        to: "KvKind::Delete => (&mut rules.read, &mut unit.read, 0, rules.delete),",
        test: KEY_VALUE,
    },
    Mutation {
        name: "model-cell",
        guard: "the kind of a flash page follows from its row",
        file: "crates/model/src/flash/geometry.rs",
        from: "let row = u64::from(wordline / self.dies);",
        to: "let row = u64::from(wordline / self.dies) + 1;",
        test: RANDOM,
    },
    Mutation {
        name: "model-cell-page",
        guard: "and from its place in the wordline",
        file: "crates/model/src/flash/geometry.rs",
        from: "u64::from(page / self.flash_page),",
        to: "u64::from(page / self.flash_page) * 0,",
        test: ZONES,
    },
    Mutation {
        name: "model-run",
        guard: "a hole ends a run of pages",
        file: "crates/model/src/flash/read.rs",
        from: "            (None, _) => {\n                self.end_run();\n",
        to: "            (None, _) => {\n",
        test: FLASH,
    },
    Mutation {
        name: "model-need",
        guard: "a write needs no more of the buffer than can come free",
        file: "crates/model/src/flash/mod.rs",
        from: "* (u64::from(self.geometry.die.wordline) - 1)",
        to: "* u64::from(self.geometry.die.wordline)",
        test: FLASH,
    },
    Mutation {
        name: "model-return",
        guard: "room comes back when the wordline is programmed",
        file: "crates/model/src/flash/work.rs",
        from: "give_back(self.buffer, self.dies, die, end, (0, held));",
        to: "give_back(self.buffer, self.dies, die, self.fetched, (0, held));",
        test: FLASH,
    },
    Mutation {
        name: "model-credits",
        guard: "collection is due when no credit is left",
        file: "crates/model/src/flash/ftl.rs",
        from: "if self.credits <= 0 {",
        to: "if self.credits < 0 {",
        test: FLASH,
    },
    Mutation {
        name: "model-erase",
        guard: "a collected line is erased, which takes its dies' time",
        file: "crates/model/src/flash/collect.rs",
        from: "        work.erase();\n",
        to: "",
        test: FLASH,
    },
    Mutation {
        name: "model-tie",
        guard: "of lines with as few valid pages the one filled first is collected",
        file: "crates/model/src/flash/policy/greedy.rs",
        from: ".max_by_key(|&line| lines.age(line))?;",
        to: ".min_by_key(|&line| lines.age(line))?;",
        test: FLASH,
    },
    Mutation {
        name: "model-age",
        guard: "the age of a line counts from when it was filled",
        file: "crates/model/src/flash/lines.rs",
        from: "filled.filled_at = placed;",
        to: "filled.filled_at = placed / 2;",
        test: FLASH,
    },
    Mutation {
        name: "model-waiting",
        guard: "a write waits for nothing that comes back by no event",
        file: "crates/model/src/zones/mod.rs",
        from: "need: new.min(most),",
        to: "need: new,",
        test: ZONES,
    },
    Mutation {
        name: "model-blocks",
        guard: "a block that was begun is erased",
        file: "crates/model/src/zones/mod.rs",
        from: "wordlines.div_ceil(u64::from(self.shape.die.rows))",
        to: "(wordlines / u64::from(self.shape.die.rows))",
        test: ZONES,
    },
    Mutation {
        name: "model-finish",
        guard: "what a finish programs comes back when that is done",
        file: "crates/model/src/zones/mod.rs",
        from: "give_back(&mut self.buffer, &mut self.dies, die, end, (pool, held));\n            }",
        to: "self.buffer.drop_now(pool, held);\n            }",
        test: ZONES,
    },
    Mutation {
        name: "model-plane",
        guard: "flash pages that follow one another lie in different planes, and their kinds follow in each",
        file: "crates/model/src/flash/geometry.rs",
        from: "planes => (index % u64::from(planes), index / u64::from(planes)),",
        to: "planes => (index % u64::from(planes), index),",
        test: RANDOM,
    },
    Mutation {
        name: "model-cached",
        guard: "the cache of single-bit cells takes so many wordlines and not one more",
        file: "crates/model/src/flash/work.rs",
        from: "self.cached.dies.len() < self.cache",
        to: "self.cached.dies.len() <= self.cache",
        test: RANDOM,
    },
    Mutation {
        name: "model-fold-first",
        guard: "an idle drive folds before it collects",
        file: "crates/model/src/flash/work.rs",
        from: "    Fold,\n    Collect,\n}",
        to: "    Collect,\n    Fold,\n}",
        test: unit(
            "model",
            "flash::tests::mechanisms::an_idle_drive_folds_before_it_collects",
        ),
    },
    Mutation {
        name: "model-map-used",
        guard: "a page of the map that is used is forgotten last",
        file: "crates/model/src/flash/extra/map_cache.rs",
        from: "if self.newest == page {",
        to: "if was_held {",
        test: unit(
            "model",
            "flash::tests::mechanisms::a_smaller_memory_forgets_what_was_not_used_for_longest",
        ),
    },
    Mutation {
        name: "model-behind",
        guard: "nothing gives way to a read when something else waits behind it",
        file: "crates/model/src/flash/extra/suspend.rs",
        from: "if free > last.end || !",
        to: "let _ = free;\n        if !",
        test: RANDOM,
    },
    Mutation {
        name: "model-moved",
        guard: "what waits for an operation that gave way comes when that ends",
        file: "crates/model/src/flash/extra/suspend.rs",
        from: "self.moved.extend(moved);",
        to: "let _ = moved;",
        test: RANDOM,
    },
    Mutation {
        name: "model-slots",
        guard: "the published program counts no slot as late that a transfer needs anyway",
        file: "crates/model/src/code/slots.rs",
        from: ".saturating_sub(wanted / self.credits);",
        to: ".saturating_sub(wanted / self.credits / 2);",
        test: RANDOM,
    },
    Mutation {
        name: "model-whole-after-change",
        guard: "with a change of parameters a pipeline is free from a whole nanosecond on",
        file: "crates/model/src/server/mod.rs",
        from: "whole: self.0.whole.saturating_add(u64::from(self.0.part > 0)),",
        to: "whole: self.0.whole,",
        test: RANDOM,
    },
];
