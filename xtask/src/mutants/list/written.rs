//! The log of the pages that a device writes.

use super::super::{Mutation, Test, integration, unit};

/// A test of the log.
const fn logs(name: &'static str) -> Test {
    unit("memory", name)
}

/// A test of the messages.
const fn messages(name: &'static str) -> Test {
    integration("tests-protocol", &["--test", "protocol"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "written-before-the-bytes",
        guard: "a page is marked when its bytes are there",
        file: "crates/memory/src/guest/dma/segment.rs",
        from: "        let to = self.at(at, bytes.len());\n",
        to: "        let to = self.at(at, bytes.len());\n        self.written(at, bytes.len());\n",
        test: logs("guest::written::tests::bytes_come_before_their_mark"),
    },
    Mutation {
        name: "written-copies",
        guard: "copies into a host's memory are logged",
        file: "crates/memory/src/guest/dma/segment.rs",
        from: "        self.written(at, bytes.len());",
        to: "",
        test: logs("guest::written::tests::every_way_to_write_is_logged"),
    },
    Mutation {
        name: "written-zeros",
        guard: "zeros are logged",
        file: "crates/memory/src/guest/dma/segment.rs",
        from: "        self.written(0, self.len as usize);",
        to: "",
        test: logs("guest::written::tests::every_way_to_write_is_logged"),
    },
    Mutation {
        name: "written-completions",
        guard: "completion queue entries are logged",
        file: "crates/memory/src/guest/ring.rs",
        from: "        self.pages.written(u64::from(index) * CQE_BYTES, CQE_BYTES);",
        to: "",
        test: messages("cases::logging::a_report_has_what_was_written_since_the_last_one"),
    },
    Mutation {
        name: "written-event-idx",
        guard: "event indexes are logged",
        file: "crates/memory/src/guest/doorbell.rs",
        from: "            self.event_idx.written(at, SLOT_BYTES as u64);",
        to: "            let _ = at;",
        test: logs("guest::written::tests::every_way_to_write_is_logged"),
    },
    Mutation {
        name: "written-by-the-kernel",
        guard: "pages of a read that the kernel has ended are logged",
        file: "crates/media/src/file/ring/mod.rs",
        from: "                log.mark(at, len.into());",
        to: "                let _ = (log, at, len);",
        test: unit(
            "media",
            "file::channel::tests::written::a_read_s_pages_are_marked_when_it_has_ended",
        ),
    },
    Mutation {
        name: "written-later-regions",
        guard: "memory that is mapped during a log is logged",
        file: "crates/memory/src/guest/dma/mod.rs",
        from: "        region.log = self.current.log.clone();",
        to: "        region.log = None;",
        test: messages("cases::logging::memory_that_is_unmapped_is_reported_after"),
    },
    Mutation {
        name: "written-earlier-commands",
        guard: "a log begins when no earlier command is in flight",
        file: "crates/transport/src/vfio_user/waiting.rs",
        from: "let over = controller.drained(*epoch);",
        to: "let over = controller.drained(epoch - 1);",
        test: messages("cases::logging::a_start_waits_for_commands_in_flight"),
    },
    Mutation {
        name: "written-late-start",
        guard: "a log that could not begin is none",
        file: "crates/transport/src/vfio_user/session.rs",
        from: "                    if result.is_err() {",
        to: "                    if result.is_err() && epoch == 0 {",
        test: messages("cases::logging::a_start_that_waits_too_long_leaves_no_log"),
    },
];
