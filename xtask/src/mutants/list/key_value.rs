//! Key-value media: space, order, and what hosts put into commands.

use crate::mutants::{Mutation, unit};

/// Tests of pairs that are kept: of what a turn copies, and of crashes.
const KEPT_SLICES: &str =
    "keyvalue::tests::kept::no_turn_copies_more_than_a_slice_into_the_log_or_to_the_disk";
const KEPT: &str =
    "keyvalue::tests::kept::pairs_come_back_as_they_once_were_and_not_before_their_last_flush";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "kv-space",
        guard: "a value gets no units that there are not",
        file: "crates/media/src/keyvalue/space.rs",
        from: "if more > u64::from(self.free_units()) {",
        to: "if more > u64::from(self.free_units()) + 1 {",
        test: unit(
            "media",
            "keyvalue::pairs::tests::behaves_as_a_map_and_space_adds_up",
        ),
    },
    Mutation {
        name: "kv-shrink",
        guard: "a value that becomes smaller gives its units back",
        file: "crates/media/src/keyvalue/space.rs",
        from: "            self.truncate(chain, units as u32);\n",
        to: "",
        test: unit(
            "media",
            "keyvalue::pairs::tests::behaves_as_a_map_and_space_adds_up",
        ),
    },
    Mutation {
        name: "kv-tail",
        guard: "keys that share their first 16 bytes are distinguished",
        file: "crates/media/src/keyvalue/index.rs",
        from: "        key.tail().cmp(tail)",
        to: "        Ordering::Equal",
        test: unit(
            "media",
            "keyvalue::pairs::tests::behaves_as_a_map_and_space_adds_up",
        ),
    },
    Mutation {
        name: "kv-keys",
        guard: "there are no more keys than the medium has room for",
        file: "crates/media/src/keyvalue/pairs/mod.rs",
        from: "            if !self.index.has_room() {",
        to: "            if false {",
        test: unit(
            "media",
            "keyvalue::pairs::tests::behaves_as_a_map_and_space_adds_up",
        ),
    },
    Mutation {
        name: "kv-largest",
        guard: "no value is larger than one may be",
        file: "crates/media/src/keyvalue/pairs/mod.rs",
        from: "if len > VALUE_MAX {",
        to: "if false {",
        test: unit("media", "keyvalue::pairs::tests::values_have_their_limit"),
    },
    Mutation {
        name: "kv-length",
        guard: "the data of a command is as large as the command says",
        file: "crates/media/src/keyvalue/nvme.rs",
        from: "if opcode.has_size() && Host::len(segments) != u64::from(sqe.cdw10) {",
        to: "if false {",
        test: unit(
            "media",
            "keyvalue::tests::nvme::sizes_of_keys_and_values_are_checked",
        ),
    },
    Mutation {
        name: "kv-list-room",
        guard: "a list ends before the end of the buffer of its host",
        file: "crates/media/src/keyvalue/list.rs",
        from: "if end > self.room {",
        to: "if self.len > self.room {",
        test: unit(
            "media",
            "keyvalue::tests::nvme::lists_are_in_order_and_end_where_the_buffer_does",
        ),
    },
    Mutation {
        name: "kv-batch-lies",
        guard: "what a compound command names lies in its data",
        file: "crates/media/src/keyvalue/samsung/compound.rs",
        from: "        if at + u64::from(sub.value_len) > has {",
        to: "        if false {",
        test: unit(
            "media",
            "keyvalue::tests::compound::malformed_heads_do_nothing",
        ),
    },
    Mutation {
        name: "kv-batch-first",
        guard: "the status of a compound command is that of the first that failed",
        file: "crates/media/src/keyvalue/samsung/compound.rs",
        from: "        if answer.status.is_success() {",
        to: "        if true {",
        test: unit(
            "media",
            "keyvalue::tests::compound::one_that_fails_leaves_the_others",
        ),
    },
    Mutation {
        name: "kv-iterator",
        guard: "an iterator returns each key at most once",
        file: "crates/media/src/keyvalue/iterators.rs",
        from: "        place.last_len = key.len() as u8;",
        to: "        place.last_len = 0;",
        test: unit(
            "media",
            "keyvalue::tests::samsung::iterators_find_what_their_prefix_and_mask_say",
        ),
    },
    Mutation {
        name: "kv-one",
        guard: "one channel has the pairs",
        file: "crates/media/src/keyvalue/channel/mod.rs",
        from: "        rest.take()",
        to: "        rest.take().or_else(|| KeyValue::new(512, 1, self.dialect).ok().map(Box::new))",
        test: unit(
            "media",
            "keyvalue::channel::tests::one_channel_has_the_pairs_and_leaves_them_to_the_next",
        ),
    },
    Mutation {
        name: "kv-bound",
        guard: "an iterator writes no more than the buffer of its host",
        file: "crates/media/src/keyvalue/iterators.rs",
        from: "if size > u64::from(self.room - self.done.len) {",
        to: "if size > u64::from(self.room) {",
        test: unit(
            "media",
            "keyvalue::tests::samsung::there_are_sixteen_iterators_and_one_that_deletes",
        ),
    },
    Mutation {
        name: "kv-slices-wait",
        guard: "no command is done while a large value is copied",
        file: "crates/media/src/keyvalue/channel/mod.rs",
        from: "        if self.slices.is_going() {\n            return Added::Full(ticket);",
        to: "        if false {\n            return Added::Full(ticket);",
        test: unit(
            "media",
            "keyvalue::tests::slices::others_wait_for_the_last_slice",
        ),
    },
    Mutation {
        name: "kv-slices-whole",
        guard: "a channel that ends leaves no value half copied",
        file: "crates/media/src/keyvalue/channel/mod.rs",
        from: "        while self.slices.is_going() {",
        to: "        while false {",
        test: unit(
            "media",
            "keyvalue::tests::slices::a_dropped_channel_leaves_a_whole_value",
        ),
    },
    Mutation {
        name: "kv-long-key",
        guard: "a long key is found by its PRP entries",
        file: "crates/media/src/keyvalue/samsung/mod.rs",
        from: "if len <= INLINE_KEY_MAX {",
        to: "if len <= INLINE_KEY_MAX + 1 {",
        test: unit(
            "media",
            "keyvalue::tests::samsung::long_keys_that_cannot_be_reached_are_refused",
        ),
    },
    Mutation {
        name: "kv-hash",
        guard: "a key that is gone is in no bucket",
        file: "crates/media/src/keyvalue/index.rs",
        from: "        self.leave_bucket(key, slot, entry.same);\n",
        to: "",
        test: unit(
            "media",
            "keyvalue::pairs::tests::behaves_as_a_map_and_space_adds_up",
        ),
    },
    Mutation {
        name: "kv-list-slices",
        guard: "a long list takes several turns",
        file: "crates/media/src/keyvalue/list.rs",
        from: "            if slice.is_spent() {",
        to: "            if false {",
        test: unit(
            "media",
            "keyvalue::tests::listings::a_list_takes_a_turn_for_each_slice",
        ),
    },
    Mutation {
        name: "kv-iterator-slices",
        guard: "an iterator that looks at many keys takes several turns",
        file: "crates/media/src/keyvalue/iterators.rs",
        from: "            if slice.is_spent() {",
        to: "            if false {",
        test: unit(
            "media",
            "keyvalue::tests::listings::an_iterator_that_finds_nothing_takes_turns",
        ),
    },
    Mutation {
        name: "kv-batch-slices",
        guard: "a compound command with large values takes several turns",
        file: "crates/media/src/keyvalue/samsung/compound.rs",
        from: "Some(later).filter(|later| later.is_for(bytes))",
        to: "Some(later).filter(|_| false)",
        test: unit(
            "media",
            "keyvalue::tests::listings::a_compound_command_takes_a_turn_for_each_slice",
        ),
    },
    Mutation {
        name: "kv-batch-gone",
        guard: "a value that a compound command has deleted again is not copied into what took its place",
        file: "crates/media/src/keyvalue/samsung/compound.rs",
        from: "                later.forget(key);\n",
        to: "",
        test: unit(
            "media",
            "keyvalue::tests::listings::values_that_a_compound_command_replaces_are_not_copied_over_what_took_their_place",
        ),
    },
    Mutation {
        name: "kv-log-slices",
        guard: "a slice is as long as what is copied into the store and into the log",
        file: "crates/media/src/keyvalue/slices.rs",
        from: "slice.spend(copies * now);",
        to: "slice.spend(now);",
        test: unit("media", KEPT_SLICES),
    },
    Mutation {
        name: "kv-log-pieces",
        guard: "a file gets a slice of the log in one turn",
        file: "crates/media/src/journal/mod.rs",
        from: "(frame.len - frame.handed).min(self.left)",
        to: "frame.len - frame.handed",
        test: unit("media", KEPT_SLICES),
    },
    Mutation {
        name: "kv-checkpoint-slices",
        guard: "a checkpoint appends a slice in one turn",
        file: "crates/media/src/keyvalue/durable.rs",
        from: "most(log).min((*left).into()) as u32;\n            log.checkpoint(pairs, now);",
        to: "most(log).min((*left).into()) as u32;\n            log.checkpoint(pairs, 3 * now);",
        test: unit("media", KEPT_SLICES),
    },
    Mutation {
        name: "kv-log-begun",
        guard: "no frame ends between what a command has deleted and the values that it stores",
        file: "crates/media/src/keyvalue/slices.rs",
        from: "        later.begin_records(&mut pairs.log_mut());\n",
        to: "",
        test: unit("media", KEPT),
    },
    Mutation {
        name: "kv-batch-one-frame",
        guard: "what a compound command does is in one frame",
        file: "crates/media/src/keyvalue/samsung/compound.rs",
        from: "    pairs.record(|log, _| log.reserve(has, count));\n",
        to: "",
        test: unit(
            "media",
            "keyvalue::tests::kept::a_compound_command_is_there_after_a_crash_or_it_is_not",
        ),
    },
];
