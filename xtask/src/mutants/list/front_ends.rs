//! Front ends of vhost-user-blk in a reactor: how many there are, when they get the disk, and when
//! they are polled.

use super::super::{Mutation, Test, integration, unit};

const fn turns(name: &'static str) -> Test {
    unit("reactor", name)
}

const fn running(name: &'static str) -> Test {
    integration("reactor", &["--test", "vhost"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "front-ends-notifications",
        guard: "a driver's notification wakes a reactor",
        file: "crates/reactor/src/hosted/association.rs",
        from: "                poller.set(notifications, source, Interest::INPUT)?;\n",
        to: "                let _ = notifications;\n",
        test: running("a_driver_is_served_in_every_mode"),
    },
    Mutation {
        name: "front-ends-asked",
        guard: "a driver is asked to notify before the reactor sleeps",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "found.is_none_or(|(attached, controller)| attached.arm(controller));",
        to: "found.is_none_or(|_| true);",
        test: running("a_driver_is_served_in_every_mode"),
    },
    Mutation {
        name: "front-ends-one",
        guard: "there is one front end at a time",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "                Some(back_end) if is_taken => back_end.refuse(now),\n",
        to: "",
        test: turns("run::front_ends::tests::there_is_one_front_end_and_a_second_one_is_refused"),
    },
    Mutation {
        name: "front-ends-left",
        guard: "a front end that connects again at once is not refused",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "                self.poll_hosted(slot.0, now, Hosted::poll);\n                is_taken",
        to: "                is_taken",
        test: turns(
            "run::front_ends::tests::one_that_comes_before_the_reactor_knows_that_the_last_has_left_is_served",
        ),
    },
    Mutation {
        name: "front-ends-vacant",
        guard: "a front end gets the disk when no command of the last one is in flight",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "                Some(back_end) if !is_vacant => back_end.keep(stream),\n",
        to: "",
        test: turns(
            "run::front_ends::tests::one_that_comes_before_the_reactor_knows_that_the_last_has_left_is_served",
        ),
    },
    Mutation {
        name: "front-ends-hold",
        guard: "the place of a front end that has left is held",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "            back_end.hold(&self.poller);\n",
        to: "            back_end.release(&self.poller);\n",
        test: turns("run::front_ends::tests::a_reactor_is_not_woken_for_one_that_waits"),
    },
    Mutation {
        name: "front-ends-kept",
        guard: "a front end that waits is served when the place is free",
        file: "crates/reactor/src/hosted/back_end/mod.rs",
        from: "        self.is_called |= self.waiting.is_some();\n",
        to: "",
        test: turns(
            "run::front_ends::tests::one_that_comes_while_the_controller_of_the_last_is_there_waits",
        ),
    },
    Mutation {
        name: "front-ends-kept-closed",
        guard: "a front end that waits does not outlive the beginning of an upgrade",
        file: "crates/reactor/src/hosted/back_end/mod.rs",
        from: "        self.waiting = None;\n        self.entrance.close(poller);",
        to: "        self.entrance.close(poller);",
        test: turns(
            "run::front_ends::tests::one_that_comes_while_the_controller_of_the_last_is_there_waits",
        ),
    },
    Mutation {
        name: "front-ends-socket",
        guard: "a reactor does not spin for front ends that wait for the place",
        file: "crates/reactor/src/hosted/entrance/listener.rs",
        from: "!self.is_closed && !self.is_held && !self.is_over",
        to: "!self.is_closed && !self.is_over",
        test: turns("hosted::back_end::tests::a_front_end_waits_while_the_place_is_being_vacated"),
    },
    Mutation {
        name: "front-ends-disk",
        guard: "a front end is refused where it is not clear which namespace it gets",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "            1 => disks.pop().ok_or(0),\n",
        to: "            1.. => disks.pop().ok_or(0),\n",
        test: turns("run::front_ends::tests::there_is_no_front_end_without_exactly_one_disk"),
    },
    Mutation {
        name: "front-ends-sleep",
        guard: "the drivers of front ends notify while the reactor sleeps",
        file: "crates/reactor/src/run/sleep.rs",
        from: "            && self.arm_front_ends();\n",
        to: "            && (true || self.arm_front_ends());\n",
        test: turns("run::front_ends::tests::all_are_armed_before_the_reactor_sleeps"),
    },
    Mutation {
        name: "front-ends-poll",
        guard: "drivers do not notify a reactor that never sleeps",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "self.mode != Mode::Poll",
        to: "true",
        test: turns("run::front_ends::tests::a_reactor_that_never_sleeps_arms_none"),
    },
    Mutation {
        name: "front-ends-idle",
        guard: "an idle front end costs no turn",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "is_armed_when_idle && attached.is_idle_for(now, WARM_NS)",
        to: "is_armed_when_idle && attached.is_idle_for(now, u64::MAX)",
        test: turns("run::front_ends::tests::an_idle_front_end_is_armed_and_costs_no_turn"),
    },
    Mutation {
        name: "front-ends-armed",
        guard: "a front end that was polled is armed again",
        file: "crates/reactor/src/hosted/association.rs",
        from: "        self.is_armed = false;\n",
        to: "",
        test: turns("run::front_ends::tests::an_idle_front_end_is_armed_and_costs_no_turn"),
    },
    Mutation {
        name: "front-ends-cool",
        guard: "a front end that is armed leaves the turns",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "                if attached.is_armed() {\n                    attached.unlist();\n                } else {\n                    self.front_ends.warm.push_back(index);\n                }\n",
        to: "                self.front_ends.warm.push_back(index);\n",
        test: turns("run::front_ends::tests::all_are_armed_before_the_reactor_sleeps"),
    },
    Mutation {
        name: "front-ends-detached",
        guard: "an idle front end ends when its namespace is taken away",
        file: "crates/reactor/src/run/front_ends/mod.rs",
        from: "        let is_due = self.checks > 0 && !self.all.is_empty();\n",
        to: "        let is_due = self.checks > CHECKS && !self.all.is_empty();\n",
        test: turns(
            "run::front_ends::tests::an_armed_front_end_ends_when_its_namespace_is_detached",
        ),
    },
    Mutation {
        name: "front-ends-gone",
        guard: "a reactor forgets a front end that has left",
        file: "crates/reactor/src/run/targets.rs",
        from: "        self.front_ends.remove(slot.0);\n",
        to: "",
        test: turns("run::front_ends::tests::the_operator_ends_one_and_a_removal_ends_all"),
    },
    Mutation {
        name: "front-ends-sums",
        guard: "counters of a front end stay when it leaves",
        file: "crates/reactor/src/network.rs",
        from: "            Done::Vhost(done) => self.vhost.add(done),\n",
        to: "            Done::Vhost(_) => {}\n",
        test: turns("network::tests::front_ends_that_have_ended_stay_in_the_sums"),
    },
];
