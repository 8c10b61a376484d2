//! The Zoned Namespace command set (ZNS 1.1), and random write areas (TP 4076, which ZNS 1.2 has in
//! its text).
//!
//! Zones that are read only or offline cannot be made by a host: they are tested where a drive has
//! some.

mod lost;
mod random;
mod reports;
mod rig;
mod states;
mod writes;

use self::lost::*;
use self::random::*;
use self::reports::*;
use self::states::*;
use self::writes::*;
use super::{Chapter, Scope, tests};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "zones",
    title: "Zoned Namespace command set",
    scope: Scope::Any,
    tests: tests![
        identify_namespace, "ZNS 1.1, 4.1.5", "zones have a size, limits that fit each other, and cover the namespace";
        identify_controller, "ZNS 1.1, 4.1.5", "the largest append (ZASL) is no more than any command may move (MDTS)";
        descriptor, "Base 2.1, 5.1.13.2.3", "the namespace's descriptors name its command set";
        hidden_from_others, "Base 2.1, 3.1.4.5", "a host that has enabled the NVM command set alone is not shown it";
        open_zone, "ZNS 1.1, 3.4.3", "Open leads to Explicitly Opened from each state but Full (1BFh)";
        close_zone, "ZNS 1.1, 3.4.3", "Close leads to Closed from each active state, and is refused in others (1BFh)";
        finish_zone, "ZNS 1.1, 3.4.3", "Finish leads to Full from each state";
        reset_zone, "ZNS 1.1, 3.4.3", "Reset leads to Empty from each state";
        offline_zone, "ZNS 1.1, 3.4.3", "Offline is refused in each state that a zone in order has (1BFh)";
        write_by_state, "ZNS 1.1, 2.1.1", "a write opens a zone implicitly, and is refused in a full one (1B9h)";
        open_all, "ZNS 1.1, 3.4.3", "Open with Select All concerns closed zones, and no others";
        close_all, "ZNS 1.1, 3.4.3", "Close with Select All concerns open zones, and no others";
        finish_all, "ZNS 1.1, 3.4.3", "Finish with Select All concerns open and closed zones, and no others";
        reset_all, "ZNS 1.1, 3.4.3", "Reset with Select All concerns all zones that are in order, whatever SLBA is";
        open_limit, "ZNS 1.1, 2.1.1", "no more zones are opened explicitly than MOR allows (1BEh)";
        implicit_room, "ZNS 1.1, 2.1.1", "zones that writes have opened make room for others, or these are refused (1BEh)";
        active_limit, "ZNS 1.1, 2.1.1", "no more zones are active than MAR allows (1BDh), and one that is finished makes room";
        not_a_start, "ZNS 1.1, 3.4.3", "an action on a block that no zone begins with is refused (002h)";
        no_such_zone, "ZNS 1.1, 3.4.3", "an action on a block past the namespace is refused (080h)";
        no_such_action, "ZNS 1.1, 3.4.3", "reserved actions are refused (002h)";
        survives_reset, "Base 2.1, 3.7.2", "zones keep their data and write pointers when the controller is reset";
        format_empties, "ZNS 1.1, 4.1.2", "Format NVM leaves every zone empty";
        in_order, "ZNS 1.1, 3.3.7", "what is written at the write pointer is read, and moves it";
        out_of_order, "ZNS 1.1, 3.3.7", "a write before or behind the write pointer is refused (1BCh), and changes nothing";
        fills, "ZNS 1.1, 2.1.1", "a zone whose last block is written is full";
        over_capacity, "ZNS 1.1, 3.3.7", "a write over the capacity of a zone is refused (1B8h)";
        write_zeroes, "ZNS 1.1, 3.3.9", "Write Zeroes writes as Write does";
        unwritten, "NVM 1.1, 3.2.4", "blocks that were never written read as DLFEAT says";
        reset_deallocates, "ZNS 1.1, 3.4.3", "what was written reads as DLFEAT says after a reset";
        read_across, "ZNS 1.1, 3.3.5", "reads cross zones where OZCS says so, or are refused (1B8h)";
        append_tells, "ZNS 1.1, 3.4.1", "an append returns its first block in Dwords 0 and 1";
        appends_together, "ZNS 1.1, 3.4.1", "appends that are submitted together lie one behind the other";
        append_not_start, "ZNS 1.1, 3.4.1", "an append to a block that no zone begins with is refused (002h)";
        append_limit, "ZNS 1.1, 3.4.1", "an append of more than ZASL is refused (002h)";
        append_over_capacity, "ZNS 1.1, 3.4.1", "an append that a zone has no room for is refused (1B8h), to a full zone (1B9h)";
        report_all, "ZNS 1.1, 3.4.2", "a report lists each zone once, in order, and all empty zones alike";
        report_from_inside, "ZNS 1.1, 3.4.2", "a report begins with the zone that its block is in";
        report_partial, "ZNS 1.1, 3.4.2", "Number of Zones counts what matches, or what fits where the report is partial";
        report_by_state, "ZNS 1.1, 3.4.2", "a report lists the zones in one state alone";
        report_header_only, "ZNS 1.1, 3.4.2", "a report without room for a zone counts them all the same";
        report_refused, "ZNS 1.1, 3.4.2", "reserved actions and options are refused (002h), blocks past the namespace too (080h)";
        extension, "ZNS 1.1, 5.3", "a descriptor extension is set where a zone is empty, makes it Closed, and comes back until it is reset";
        extension_refused, "ZNS 1.1, 5.3", "where there are no extensions, they are refused (002h)";
        changed_zones, "ZNS 1.1, 4.1.4", "the Changed Zone List of a drive in order is empty";
        read_only_data, "ZNS 1.1, 2.1.1", "a zone that is read only is read, and takes no write or append (1BAh)";
        offline_data, "ZNS 1.1, 2.1.1", "a zone that is offline is neither read nor written (1BBh)";
        lost_actions, "ZNS 1.1, 3.4.3", "zones that are read only or offline are not opened, closed, finished or reset (1BFh)";
        lost_select_all, "ZNS 1.1, 3.4.3", "Select All leaves zones that are read only or offline as they are";
        lost_random, "ZNS 1.2, 3.4.3", "zones that are read only or offline are given no random write area or descriptor extension";
        lost_reports, "ZNS 1.1, 3.4.2", "reports list zones that are read only, and those that are offline";
        random_identify, "ZNS 1.2, 4.1.5", "random write areas are whole steps, and no more of them than zones may be active";
        random_refused, "ZNS 1.2, 3.4.3", "where there are no random write areas, none is given";
        random_order, "ZNS 1.2, 5.7", "a random write area is written in any order and again, and the write pointer stays";
        random_implicit, "ZNS 1.2, 5.7", "a write behind the area moves the write pointer by whole steps";
        random_explicit, "ZNS 1.2, 3.4.3", "Flush Explicit ZRWA Range moves the write pointer behind its block, and fills zones";
        random_flush_refused, "ZNS 1.2, 3.4.3", "a flush is refused in part of a step, behind the area, and in zones without one";
        random_outside, "ZNS 1.2, 5.7", "writes before the write pointer, and too far behind it, are refused (1BCh)";
        random_empty_only, "ZNS 1.2, 3.4.3", "a random write area is given to an empty zone alone (1B6h)";
        random_limit, "ZNS 1.2, 3.4.3", "one random write area too many is refused (1B7h); a reset and a finish free theirs";
        random_append, "ZNS 1.2, 3.4.1", "an append to a zone with a random write area is refused (1B6h)";
    ],
};
