//! Command sets by their identifiers, and zones.

use super::super::{Mutation, Test, integration, program, unit};

/// Zones over memory, asked as a lane asks.
const fn media(name: &'static str) -> Test {
    integration("media", &["--test", "media"], name)
}

const ZONES: &str = "crates/media/src/zoned/zones/mod.rs";
const LAYER: &str = "crates/media/src/zoned/mod.rs";
const MANAGE: &str = "crates/media/src/zoned/manage.rs";
const KEEPER: &str = "crates/media/src/zoned/keeper.rs";
/// Programs of commands on a disk that crashes.
const CRASHES: &str =
    "zoned::tests::zones_come_back_as_they_once_were_and_not_before_their_last_flush";
const TIMED: &str = "crates/media/src/channel/timed.rs";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "zone-load-one-write",
        guard: "the load generator has one write in flight in a zone",
        file: "crates/driver/src/workload/zones.rs",
        from: "(append || one.in_flight == 0) => {",
        to: "(append || one.in_flight < 2) => {",
        test: unit(
            "driver",
            "workload::zones::tests::writes_have_one_command_in_a_zone_and_full_zones_are_left",
        ),
    },
    Mutation {
        name: "zone-report-fits",
        guard: "a drive's report of zones is within its namespace",
        file: "crates/driver/src/zoned.rs",
        from: "end.is_some_and(|end| end <= namespace.blocks) && zone",
        to: "end.is_some() && zone",
        test: unit(
            "driver",
            "zoned::tests::a_report_has_zones_one_after_the_other_inside_of_the_namespace",
        ),
    },
    Mutation {
        name: "zone-load-finishes",
        guard: "a zone that is left with a rest does not stay active",
        file: "crates/driver/src/workload/zones.rs",
        from: "if one.partial || zone.has_rest {",
        to: "if one.partial {",
        test: unit(
            "driver",
            "workload::zones::tests::writes_have_one_command_in_a_zone_and_full_zones_are_left",
        ),
    },
    Mutation {
        name: "zone-write-pointer",
        guard: "a zone is written at its write pointer only",
        file: ZONES,
        from: "if random { in_areas } else { into == written };",
        to: "if random { in_areas } else { into <= written };",
        test: unit(
            "media",
            "zoned::zones::tests::writes_are_refused_for_what_is_wrong_with_them",
        ),
    },
    Mutation {
        name: "zone-capacity",
        guard: "nothing is written behind the capacity of a zone",
        file: ZONES,
        from: "if end > self.geometry.capacity {",
        to: "if end > self.geometry.zone_bytes {",
        test: unit(
            "media",
            "zoned::zones::tests::writes_are_refused_for_what_is_wrong_with_them",
        ),
    },
    Mutation {
        name: "zone-active-limit",
        guard: "never more zones are active than may be",
        file: ZONES,
        from: "if most > 0 && !is_active(from) && self.active >= most {",
        to: "if most > 0 && !is_active(from) && self.active > most {",
        test: unit(
            "media",
            "zoned::zones::tests::an_implicitly_opened_zone_makes_room_and_an_explicitly_opened_one_does_not",
        ),
    },
    Mutation {
        name: "zone-open-limit",
        guard: "never more zones are open than may be",
        file: ZONES,
        from: "if most == 0 || is_open(from) || self.open < most {",
        to: "if most == 0 || is_open(from) || self.open <= most {",
        test: unit(
            "media",
            "zoned::zones::tests::random_programs_end_as_the_model_says",
        ),
    },
    Mutation {
        name: "zone-implicit-order",
        guard: "the zone that was opened implicitly longest ago makes room",
        file: ZONES,
        from: "let longest = self.implicit.front().copied();",
        to: "let longest = self.implicit.back().copied();",
        test: unit(
            "media",
            "zoned::zones::tests::an_implicitly_opened_zone_makes_room_and_an_explicitly_opened_one_does_not",
        ),
    },
    Mutation {
        name: "zone-reset-waits",
        guard: "a reset waits for writes whose bytes are still moving",
        file: LAYER,
        from: "            Taken::Write { zone, .. } | Taken::Undo { zone, .. } => (first..=last).contains(&zone),",
        to: "            Taken::Write { .. } | Taken::Undo { .. } => false,",
        test: unit("media", "zoned::tests::under_way::a_reset_waits_for_writes"),
    },
    Mutation {
        name: "zone-reset-erases",
        guard: "what was in a zone that is reset reads as zero",
        file: MANAGE,
        from: "            if zone.reached == 0 {\n                continue;",
        to: "            if true {\n                continue;",
        test: media("zoned::a_reset_gives_zeros_and_room"),
    },
    Mutation {
        name: "zone-append-result",
        guard: "an append tells the block that it was put at",
        file: LAYER,
        from: "let lba = (write.offset - extent.offset) >> lba_shift;",
        to: "let lba = zone_slba(sqe);",
        test: media("zoned::appends_tell_where_they_went"),
    },
    Mutation {
        name: "set-reservations",
        guard: "commands of a set are refused where somebody else has a reservation",
        file: "crates/controller/src/lane/restrictions.rs",
        from: "        Access::Changes => restrictions.write_refusal(),",
        to: "        Access::Changes => restrictions.reads,",
        test: unit(
            "controller",
            "lane::tests::sets::reservations_and_operations_that_go_on_hold_for_sets",
        ),
    },
    Mutation {
        name: "set-transfer-limit",
        guard: "MDTS holds for commands of a set",
        file: "crates/controller/src/lane/issue_once.rs",
        from: "if bytes > u64::from(self.mdts_bytes) {",
        to: "if bytes > u64::from(u32::MAX) {",
        test: unit(
            "controller",
            "lane::tests::sets::mistakes_do_not_reach_the_medium",
        ),
    },
    Mutation {
        name: "set-result",
        guard: "Dword 1 of a completion is the upper half of a set's result",
        file: "crates/controller/src/lane/complete.rs",
        from: "dw1: (slot.result() >> 32) as u32,",
        to: "dw1: 0,",
        test: unit(
            "controller",
            "lane::tests::sets::the_result_of_a_set_is_in_dwords_0_and_1",
        ),
    },
    Mutation {
        name: "set-hidden",
        guard: "a host without all command sets sees namespaces of the NVM command set only",
        file: "crates/controller/src/controller/attached.rs",
        from: "        if !all_sets {",
        to: "        if all_sets {",
        test: unit(
            "controller",
            "controller::tests::sets::a_host_without_all_command_sets_sees_no_zones",
        ),
    },
    Mutation {
        name: "zone-append-room",
        guard: "a model is asked for the room that an append needs",
        file: TIMED,
        from: "let needed = self.inner.needs(request);",
        to: "let needed: Option<Op<'static>> = None;",
        test: media("timed::an_append_waits_for_room_where_the_write_pointer_is"),
    },
    Mutation {
        name: "zone-told-in-order",
        guard: "nothing is asked of a model before it knows what a command did to all zones",
        file: TIMED,
        from: "self.untold.is_none() && self.pieces",
        to: "self.pieces",
        test: media("timed::a_reset_of_all_zones_is_told_in_parts"),
    },
    Mutation {
        name: "zone-random-area-end",
        guard: "a random write area, and as much behind it, is all that may be written",
        file: ZONES,
        from: "end - written <= 2 * self.geometry.random_bytes()",
        to: "end - written <= 3 * self.geometry.random_bytes()",
        test: unit(
            "media",
            "zoned::zones::tests::random::an_area_is_written_in_any_order_and_what_is_behind_it_moves_it",
        ),
    },
    Mutation {
        name: "zone-random-area-freed",
        guard: "a zone that is no longer active has no random write area",
        file: ZONES,
        from: "if !is_active(to) && std::mem::take(&mut zone.random)",
        to: "if !is_active(to) && zone.random && is_active(to)",
        test: unit(
            "media",
            "zoned::zones::tests::random::areas_are_given_to_empty_zones_as_long_as_there_are_some",
        ),
    },
    Mutation {
        name: "zone-random-area-erased",
        guard: "a reset erases what was written behind the write pointer",
        file: MANAGE,
        from: "                    len: zone.reached,",
        to: "                    len: zone.written,",
        test: media("zoned::a_random_write_area_is_written_over_committed_and_erased"),
    },
    Mutation {
        name: "zone-random-area-erased-with-others",
        guard: "also where zones are erased as one piece",
        file: MANAGE,
        from: "zones.start(number) + zone.reached);",
        to: "zones.start(number) + zone.written);",
        test: media("zoned::a_random_write_area_is_written_over_committed_and_erased"),
    },
    Mutation {
        name: "zone-random-commit-waits",
        guard: "nothing is committed in a zone that is being erased",
        file: MANAGE,
        from: "        self.may_write(zone)?;\n        let zones",
        to: "        let zones",
        test: unit(
            "media",
            "zoned::tests::under_way::a_commit_waits_for_a_reset",
        ),
    },
    Mutation {
        name: "zone-pointer-ahead",
        guard: "no write pointer is recorded ahead of bytes in flight",
        file: KEEPER,
        from: "let zone = if out.iter().any(|out| out.what.is_write_to(number)) {",
        to: "let zone = if out.iter().any(|out| out.what.is_write_to(number) && false) {",
        test: unit(
            "media",
            "zoned::tests::under_way::a_write_pointer_does_not_come_back_ahead_of_bytes_under_way",
        ),
    },
    Mutation {
        name: "zone-pointer-of-area",
        guard: "nor one of a zone with a random write area",
        file: ZONES,
        from: "let written = zone.written.min(pointer);",
        to: "let written = if zone.random { zone.written } else { zone.written.min(pointer) };",
        test: unit(
            "media",
            "zoned::tests::under_way::a_write_pointer_does_not_come_back_ahead_of_bytes_under_way",
        ),
    },
    Mutation {
        name: "zone-area-recorded",
        guard: "what was written in a random write area is not swept away",
        file: ZONES,
        from: "reached: zone.reached.min(written + area),",
        to: "reached: zone.reached.min(written),",
        test: unit("media", CRASHES),
    },
    Mutation {
        name: "zone-commit-recorded",
        guard: "a commit is recorded while writes are on their way",
        file: MANAGE,
        from: "keeper.moved(zone, to);",
        to: "keeper.touch(zone);",
        test: unit("media", CRASHES),
    },
    Mutation {
        name: "zone-swept",
        guard: "what lies behind a write pointer after a crash is erased",
        file: "crates/media/src/zoned/open.rs",
        from: "            storage.clear(next.max(from), to - next.max(from))?;\n",
        to: "",
        test: unit("media", CRASHES),
    },
    Mutation {
        name: "zone-reset-first",
        guard: "a reset is in the log before its bytes are erased",
        file: "crates/media/src/zoned/durable.rs",
        from: "held.until.is_some_and(|until| until <= settled)",
        to: "held.until.is_none_or(|until| until <= settled || held.what == Step::Reset)",
        test: unit("media", CRASHES),
    },
    Mutation {
        name: "zone-lost-told",
        guard: "hosts are notified of a zone that their drive loses",
        file: "crates/reactor/src/run/mod.rs",
        from: "controller.zone_changed(id, offset);",
        to: "controller.zone_changed(id, offset + u64::MAX / 2);",
        test: program("zones_lost::a_host_is_told_of_zones_that_its_drive_gives_up"),
    },
    Mutation {
        name: "zone-lost-for-good",
        guard: "a zone that is offline is not given back",
        file: ZONES,
        from: "ZoneState::OFFLINE => false,\n            ZoneState::READ_ONLY =>",
        to: "ZoneState::OFFLINE => to != ZoneState::OFFLINE,\n            ZoneState::READ_ONLY =>",
        test: media("kept::zones_that_were_given_up_stay_so"),
    },
    Mutation {
        name: "zone-lost-recorded",
        guard: "a lost zone stays lost after a restart",
        file: "crates/media/src/zoned/loss.rs",
        from: "            keeper.touch(zone);",
        to: "            let _ = keeper;",
        test: media("kept::zones_that_were_given_up_stay_so"),
    },
];
