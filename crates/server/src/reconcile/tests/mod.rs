//! Plans, carried out on a model that refuses the same steps as a server.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use api::Kind;
use api::config::{Config, Controller, from_toml};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use self::model::Model;
use super::inventory::{Objects, find};
use super::merge::merge;
use super::step::Step;
use super::{Actual, Placed, plan, taken_over};

/// Objects in a canonical order.
fn sorted(objects: &Objects) -> Objects {
    let mut objects = objects.clone();
    objects.media.sort_by(|a, b| a.name.cmp(&b.name));
    objects.namespace.sort_by(|a, b| a.name.cmp(&b.name));
    objects.tenant.sort_by(|a, b| a.name.cmp(&b.name));
    objects.controller.sort_by(|a, b| a.name.cmp(&b.name));
    objects
}

const MEDIA: [&str; 7] = [
    "",
    "kind = \"null\"\nsize = \"16GiB\"\n",
    "kind = \"null\"\nsize = \"32GiB\"\n",
    "kind = \"file\"\npath = \"a\"\nsize = \"16GiB\"\n",
    "kind = \"ram\"\nsize = \"16GiB\"\n",
    "kind = \"null\"\nsize = \"16GiB\"\ntiming.preset = \"optane-p4800x\"\n",
    "kind = \"null\"\nsize = \"16GiB\"\ntiming.preset = \"optane-p4800x\"\ntiming.read_latency = \"20us\"\n",
];

prop_compose! {
    /// A configuration of two media, four namespaces, two tenants and three controllers, each of
    /// which may be missing.
    fn any_text()(
        media in prop::array::uniform2(0..MEDIA.len()),
        namespaces in prop::array::uniform4((0..3_u32, 0..2_usize, 1..4_u64, 0..4_u32, 0..4_usize)),
        tenants in prop::array::uniform2(0..4_u32),
        controllers in prop::array::uniform3(
            (0..4_u32, 0..3_u32, 0..3_u32, 0..3_u32, 0..6_u32, 0..6_usize)
        ),
    ) -> String {
        let mut text = String::new();
        for (at, medium) in media.into_iter().enumerate().filter(|(_, medium)| *medium != 0) {
            text += &format!("[[media]]\nname = \"m{at}\"\n{}", MEDIA[medium]);
        }
        let there = |at: usize| media[at] != 0;
        let tenant = |at: u32| match at {
            1 | 2 if tenants[at as usize - 1] != 0 => format!("tenant = \"t{}\"\n", at - 1),
            _ => String::new(),
        };
        let mut lists = vec![Vec::new(); 4];
        for (at, (is, medium, len, of, user)) in namespaces.into_iter().enumerate() {
            if is == 0 || !there(medium) {
                continue;
            }
            let start = 4 * at as u64;
            text += &format!(
                "[[namespace]]\nname = \"n{at}\"\nmedia = \"m{medium}\"\nrange = \"{start}GiB..{}GiB\"\nweight = {}\n{}",
                start + len, 1 + of, tenant(of)
            );
            lists[user].push(format!("\"n{at}\""));
        }
        for (at, weight) in tenants.into_iter().enumerate().filter(|(_, weight)| *weight != 0) {
            text += &format!("[[tenant]]\nname = \"t{at}\"\nweight = {weight}\n");
        }
        for (at, (is, queues, of, subsystem, pool, serial)) in controllers.into_iter().enumerate() {
            if is == 0 {
                continue;
            }
            text += &format!(
                "[[controller]]\nname = \"c{at}\"\nlisten = \"vfio-user:/{at}\"\nnamespaces = [{}]\nqueues = {}\nsample = {}\n{}",
                lists[at].join(", "), 1 + queues, 16 * pool, tenant(of)
            );
            if subsystem == 0 {
                text += "subsystem = \"s\"\n";
            }
            if pool < 2 && there(pool as usize) {
                text += &format!("pool = [\"m{pool}\"]\n");
            }
            if let Some(serial) = ["x", "y"].get(serial) {
                text += &format!("serial = \"{serial}\"\n");
            }
        }
        text
    }
}

/// A configuration that is shown as its text.
#[derive(Clone)]
struct Written(String, Config);

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Configurations to choose from, the shortest first. To read one takes as long as a hundred plans,
/// and it is the combinations that count: there are [`cases`] of those.
static CONFIGS: LazyLock<Vec<Written>> = LazyLock::new(|| {
    let mut runner = TestRunner::deterministic();
    let texts = std::iter::repeat_with(|| any_text().new_tree(&mut runner).unwrap().current());
    let configs = texts.filter_map(|text| {
        let config = from_toml(&text).ok()?;
        Some(Written(text, config))
    });
    let count = (cases().cases as usize / 5).min(20_000);
    let mut configs: Vec<_> = configs.take(count).collect();
    configs.sort_by_key(|Written(text, _)| text.len());
    configs
});

fn any_config() -> impl Strategy<Value = Written> {
    (0..CONFIGS.len()).prop_map(|at| CONFIGS[at].clone())
}

/// Run-time changes and attached hosts, beside the configuration.
fn meddle(model: &mut Model, hosts: u32, detached: u32, attached: u32) {
    let names: Vec<String> = model
        .served
        .config
        .controller
        .iter()
        .map(|c| c.name.clone())
        .collect();
    for (_, name) in names
        .iter()
        .enumerate()
        .filter(|(at, _)| hosts & (1 << at) != 0)
    {
        model.served.hosts.insert(name.clone());
    }
    let namespaces: Vec<String> = model.served.placed.keys().cloned().collect();
    for (at, name) in namespaces.iter().enumerate() {
        let placed = model.served.placed.get_mut(name).unwrap();
        if detached & (1 << at) != 0 {
            placed.controllers.clear();
        }
        let same = |c: &&Controller| c.subsystem() == placed.subsystem;
        let mut users = model.served.config.controller.iter().filter(same);
        if attached & (1 << at) != 0
            && let Some(user) = users.next()
        {
            placed.controllers.insert(user.name.clone());
        }
    }
}

/// Cases of each of the two properties, unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 5000;

/// The cases of a property. Random files that do not fit run-time objects are frequent, so as many
/// may be rejected.
fn cases() -> ProptestConfig {
    let said = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    let cases = if said { default.cases } else { CASES };
    ProptestConfig {
        cases,
        max_global_rejects: cases,
        max_local_rejects: u32::MAX,
        ..default
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_plan_that_is_carried_out_gives_what_was_wanted_and_is_then_empty(
        // in half of the cases operators have changed no object
        (then, is_unchanged) in (any_config(), any::<bool>()),
        end in any_config(),
        file in any_config(),
        (hosts, detached, attached) in (0..8_u32, 0..16_u32, 0..16_u32),
        consent: bool,
    ) {
        let then = if is_unchanged { end.clone() } else { then };
        let [then, end, file] = [then, end, file].map(|Written(_, config)| config);
        let mut model = Model::of(&end);
        meddle(&mut model, hosts, detached, attached);
        model.consent = consent;
        let before = model.clone();
        let (of_then, of_file) = (Objects::of(&then), Objects::of(&file));
        let wanted = merge(&of_then, &Objects::of(&end), &of_file).objects;
        let planned = plan(&model.served, &wanted, consent);
        // run-time objects may be incompatible with the file; then nothing is done
        prop_assume!(planned.is_ok());
        let plan_of = planned.unwrap();
        model.do_all(&plan_of, plan_of.steps.len());
        let now = Objects::of(&model.served.config);
        prop_assert_eq!(sorted(&now), sorted(&plan_of.end));
        if plan_of.held.is_empty() {
            prop_assert_eq!(sorted(&now), sorted(&wanted));
        }
        for held in &plan_of.held {
            let is = |config: &Config| match held.kind {
                Kind::Media => format!("{:?}", find(&config.media, &held.name)),
                Kind::Namespace => format!("{:?}", find(&config.namespace, &held.name)),
                Kind::Tenant => format!("{:?}", find(&config.tenant, &held.name)),
                _ => format!("{:?}", find(&config.controller, &held.name)),
            };
            prop_assert_eq!(is(&model.served.config), is(&before.served.config));
            // nor is it recreated as it was, which would end what hosts and operators have changed
            let recreated = plan_of.steps.iter().find(|planned| {
                let id = planned.step.id();
                (id.kind(), id.name()) == (held.kind, held.name.as_str())
                    && matches!(planned.step, Step::Create(_) | Step::Restore(..) | Step::Delete(_))
            });
            prop_assert_eq!(recreated, None);
        }
        if !consent {
            prop_assert_eq!(&model.served.hosts, &before.served.hosts);
        }
        // a restart, or another reload, leads to the same result
        let taken = taken_over(&of_then, &of_file, &plan_of.held);
        let again = merge(&taken, &now, &of_file);
        prop_assert_eq!(sorted(&again.objects), sorted(&wanted));
        let second = plan(&model.served, &again.objects, consent).unwrap();
        prop_assert_eq!(&second.steps[..], &[][..]);
    }

    #[test]
    fn what_a_failed_step_has_left_undone_is_done_by_the_next_plan(
        // in half of the cases operators have changed no object
        (then, is_unchanged) in (any_config(), any::<bool>()),
        end in any_config(),
        file in any_config(),
        part in 0.0..1.0_f64,
        (detached, attached) in (0..16_u32, 0..16_u32),
    ) {
        let then = if is_unchanged { end.clone() } else { then };
        let [then, end, file] = [then, end, file].map(|Written(_, config)| config);
        let mut model = Model::of(&end);
        meddle(&mut model, 0, detached, attached);
        let (of_then, of_file) = (Objects::of(&then), Objects::of(&file));
        let wanted = merge(&of_then, &Objects::of(&end), &of_file).objects;
        let Ok(first) = plan(&model.served, &wanted, true) else {
            return Err(TestCaseError::reject("they do not fit"));
        };
        let count = (part * first.steps.len() as f64) as usize;
        let mut whole = model.clone();
        whole.do_all(&first, first.steps.len());
        model.do_all(&first, count);
        let taken = taken_over(&of_then, &of_file, &first.held);
        let again = merge(&taken, &first.end, &of_file).objects;
        prop_assert_eq!(sorted(&again), sorted(&wanted));
        let second = match plan(&model.served, &again, true) {
            Ok(second) => second,
            Err(problems) => {
                // deferral hid that the wanted configuration is invalid
                let mut whole = end;
                wanted.put_into(&mut whole);
                prop_assert_ne!(&whole.validate()[..], &[][..], "{:?}", problems);
                return Ok(());
            }
        };
        model.do_all(&second, second.steps.len());
        prop_assert_eq!(sorted(&Objects::of(&model.served.config)), sorted(&second.end));
        // everything has returned, also what operators have attached and detached
        if second.end == first.end {
            prop_assert_eq!(&model.served.placed, &whole.served.placed);
        }
    }
}

fn served(text: &str, hosts: &[&str]) -> Actual {
    let mut model = Model::of(&from_toml(text).unwrap());
    let hosts = hosts.iter().map(|host| (*host).to_owned());
    model.served.hosts = hosts.collect();
    model.served
}

/// The lines of a plan: a line for each step and for each deferred change.
fn lines(served: &Actual, text: &str, consent: bool) -> Vec<String> {
    let wanted = Objects::of(&from_toml(text).unwrap());
    let plan = plan(served, &wanted, consent).unwrap();
    let steps = plan.steps.iter();
    let steps = steps.map(|step| api::PlannedStep::from(step).line());
    let held = plan
        .held
        .iter()
        .map(|held| format!("! {} {}", held.kind.name(), held.name));
    steps.chain(held).collect()
}

const FILE: &str = "[[media]]\nname = \"m\"\nkind = \"file\"\npath = \"a\"\nsize = \"8GiB\"\n";
const NAMESPACE: &str = "[[namespace]]\nname = \"n\"\nmedia = \"m\"\nrange = \"0GiB..4GiB\"\n";
const CONTROLLER: &str =
    "[[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = \"vfio-user:/c\"\n";

fn with(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn what_is_used_goes_after_its_users_and_comes_before_them() {
    let now = with(&[FILE, NAMESPACE, CONTROLLER]);
    let then = now.replace("\"a\"", "\"b\"");
    let expected = [
        "- namespace n detached from controller c",
        "- namespace n: to be recreated: medium m is recreated",
        "- media m: to be recreated: path cannot change",
        "+ media m: file, b, 8GiB",
        "+ namespace n: on medium m, 0B..4GiB",
        "+ namespace n attached to controller c",
    ];
    assert_eq!(lines(&served(&now, &[]), &then, false), expected);
    // a host is attached, without consent
    let held = ["! media m"];
    assert_eq!(lines(&served(&now, &["c"]), &then, false), held);
    assert_eq!(lines(&served(&now, &["c"]), &then, true), expected);
}

#[test]
fn what_may_change_under_a_host_does() {
    let tenant = "[[tenant]]\nname = \"t\"\niops = 1000\n";
    let timed = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"8GiB\"\ntiming.preset = \"optane-p4800x\"\n";
    let now = with(&[timed, NAMESPACE, CONTROLLER, tenant]);
    let then = with(&[
        timed,
        "timing.read_latency = \"20us\"\n",
        &NAMESPACE.replace("4GiB", "6GiB"),
        "tenant = \"t\"\n",
        "[[namespace]]\nname = \"o\"\nmedia = \"m\"\nrange = \"6GiB..8GiB\"\n",
        &CONTROLLER.replace("[\"n\"]", "[\"n\", \"o\"]"),
        "reactors = [0]\n",
        "sample = 16\n",
        &tenant.replace("1000", "2000"),
    ]);
    let expected = [
        "~ namespace n: 6GiB from now on",
        "~ tenant t: iops 1000 -> 2000",
        "~ media m: timing.read_latency none -> 20us",
        "~ namespace n: tenant none -> t",
        "+ namespace o: on medium m, 6GiB..8GiB",
        "+ namespace o attached to controller c",
        "~ controller c: reactors its own -> 0",
        "~ controller c: sample 256 -> 16",
    ];
    assert_eq!(lines(&served(&now, &["c"]), &then, false), expected);
}

#[test]
fn what_would_lose_something_stays_and_says_what_to_do() {
    let now = with(&[FILE, NAMESPACE, CONTROLLER]);
    let host = served(&now, &["c"]);
    let why = |served: &Actual, then: &str| {
        let wanted = Objects::of(&from_toml(then).unwrap());
        let plan = plan(served, &wanted, false).unwrap();
        assert_eq!(plan.steps, []);
        plan.held[0].why.clone()
    };
    let queues = with(&[&now, "queues = 3\n"]);
    let said = why(&host, &queues);
    assert!(
        said.contains("queues cannot change") && said.contains("detach_hosts=true"),
        "{said}"
    );
    let gone = with(&[FILE, NAMESPACE]);
    assert!(why(&host, &gone).contains("a host is attached"));
    let smaller = now.replace("4GiB", "3GiB");
    assert!(why(&host, &smaller).contains("nvmirage resize n 3GiB --shrink"));
    let alone = served(&with(&[FILE, NAMESPACE]), &[]);
    let smaller = with(&[FILE, NAMESPACE]).replace("4GiB", "3GiB");
    assert!(why(&alone, &smaller).contains("nvmirage delete namespace n"));
    let memory = "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"8GiB\"\n";
    let said = why(&served(memory, &[]), &memory.replace('8', "9"));
    assert!(
        said.contains("in memory") && said.contains("nvmirage delete media m"),
        "{said}"
    );
    let mut pool = served(
        &with(&[
            FILE,
            "[[controller]]\nname = \"c\"\npool = [\"m\"]\nlisten = \"vfio-user:/c\"\n",
        ]),
        &[],
    );
    let placed = Placed {
        medium: "m".into(),
        subsystem: "c".into(),
        controllers: BTreeSet::new(),
        made_by_host: true,
    };
    pool.placed = BTreeMap::from([("c:1".to_owned(), placed)]);
    assert!(why(&pool, "").contains("nvmirage delete namespace c:1"));
}

/// A namespace that moves to another medium, or to a recreated one, is not shrunk in its old place.
#[test]
fn a_shorter_namespace_elsewhere_cuts_nothing() {
    let other = FILE.replace("\"m\"", "\"o\"").replace("\"a\"", "\"o\"");
    let now = with(&[FILE, &other, NAMESPACE, CONTROLLER]);
    let elsewhere = now.replace(
        "media = \"m\"\nrange = \"0GiB..4GiB\"",
        "media = \"o\"\nrange = \"0GiB..2GiB\"",
    );
    let anew = now
        .replace("4GiB", "2GiB")
        .replace("path = \"a\"", "path = \"b\"");
    for then in [elsewhere, anew] {
        let lines = lines(&served(&now, &[]), &then, false);
        assert!(lines.iter().all(|line| !line.starts_with('!')), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("0B..2GiB")),
            "{lines:?}"
        );
    }
}

const POOL: &str = "pool = [\"m\"]\n";

/// A controller of subsystem `s`.
fn in_s(name: &str, rest: &str) -> String {
    format!(
        "[[controller]]\nname = \"{name}\"\nlisten = \"vfio-user:/{name}\"\nsubsystem = \"s\"\n{rest}\n"
    )
}

/// Two controllers of one subsystem, of which the first has the pool and the second a list.
fn pair(pool: &str, listed: &str) -> String {
    let pool = in_s("a", &format!("pool = [{pool}]"));
    pool + &in_s("b", &format!("namespaces = [{listed}]"))
}

/// A controller that got it at run time does not prevent the move.
#[test]
fn a_namespace_that_goes_to_a_pool_is_detached_from_all_controllers() {
    let now = with(&[FILE, NAMESPACE, &pair("", "\"n\"")]);
    let mut served = served(&now, &[]);
    let placed = served.placed.get_mut("n").unwrap();
    placed.controllers.insert("a".into());
    let pool = "[[controller]]\nname = \"p\"\nlisten = \"vfio-user:/p\"\npool = [\"m\"]\n";
    let then = with(&[FILE, NAMESPACE, &pair("", ""), pool]);
    let expected = [
        "- namespace n detached from controller a",
        "- namespace n detached from controller b",
        "- namespace n: to be recreated: it moves to subsystem p",
        "+ namespace n: on medium m, 0B..4GiB",
        "+ controller p: vfio-user:/p, no namespaces",
    ];
    assert_eq!(lines(&served, &then, false), expected);
}

/// A pool belongs to all controllers of its subsystem, whichever of them lists it.
#[test]
fn the_pool_of_a_host_stays_with_what_has_it() {
    let now = with(&[FILE, &pair("\"m\"", "")]);
    let then = now.replace("path = \"a\"", "path = \"b\"");
    let held = ["! media m"];
    assert_eq!(lines(&served(&now, &["b"]), &then, false), held);
    let expected = [
        "- controller b: to be recreated: medium m of its pool is recreated",
        "- controller a: to be recreated: medium m of its pool is recreated",
        "- media m: to be recreated: path cannot change",
        "+ media m: file, b, 8GiB",
        "+ controller a: vfio-user:/a, no namespaces",
        "+ controller b: vfio-user:/b, no namespaces",
    ];
    assert_eq!(lines(&served(&now, &["b"]), &then, true), expected);
}

/// Wherever a reload stops, the configuration matches what is served.
#[test]
fn a_pool_is_named_while_the_controller_that_names_it_is_made_anew() {
    let now = with(&[FILE, &pair("\"m\"", "")]);
    let then = now.replace("pool =", "queues = 3\npool =");
    let model = Model::of(&from_toml(&now).unwrap());
    let wanted = Objects::of(&from_toml(&then).unwrap());
    let plan = plan(&model.served, &wanted, false).unwrap();
    assert_eq!(plan.steps.len(), 2, "it is deleted and made");
    for count in 0..=2 {
        let mut model = model.clone();
        model.do_all(&plan, count);
        assert_eq!(model.served.config.pool_of("s"), ["m"], "after {count}");
    }
}

#[test]
fn what_is_held_back_and_does_not_fit_the_rest_ends_it() {
    let now = with(&[FILE, NAMESPACE, CONTROLLER]);
    // the remaining controller's socket goes to another controller
    let other = CONTROLLER.replace("name = \"c\"", "name = \"d\"");
    let then = with(&[FILE, NAMESPACE, &other.replace("[\"n\"]", "[]")]);
    let wanted = Objects::of(&from_toml(&then).unwrap());
    let (problems, held) = plan(&served(&now, &["c"]), &wanted, false).unwrap_err();
    let said = problems[0].to_string();
    assert!(said.contains("is used by controller"), "{said}");
    assert_eq!(held[0].name, "c");
}

/// A controller that stays keeps its whole subsystem, even if the file no longer has the subsystem:
/// recreating it would lose what was attached at run time.
#[test]
fn a_controller_that_stays_keeps_its_subsystem_when_the_file_moves_it() {
    let null = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"8GiB\"\n";
    let ram = "[[media]]\nname = \"r\"\nkind = \"ram\"\nsize = \"8GiB\"\n";
    let of_ram = NAMESPACE.replace("\"m\"", "\"r\"");
    let of_pool = NAMESPACE.replace("\"n\"", "\"u\"");
    let list = in_s("a", "namespaces = [\"n\"]\n");
    let now = with(&[null, ram, &of_ram, &of_pool, &list, &in_s("b", POOL)]);
    let mut model = Model::of(&from_toml(&now).unwrap());
    let placed = model.served.placed.get_mut("u").unwrap();
    placed.controllers.insert("a".into());
    let alone = in_s("a", POOL).replace("subsystem = \"s\"\n", "");
    let then = with(&[null, &ram.replace("ram", "null"), &of_ram, &alone]);
    let held = [
        "! media r",
        "! namespace u",
        "! controller a",
        "! controller b",
    ];
    assert_eq!(lines(&model.served, &then, false), held);
    // likewise for a serial number, which no medium or namespace depends on
    let serial = in_s("b", "serial = \"x\"\n");
    let now = with(&[ram, &of_ram, &list, &serial]);
    let alone = CONTROLLER
        .replace("\"c\"", "\"a\"")
        .replace("[\"n\"]", "[]");
    let then = with(&[&ram.replace("ram", "null"), &of_ram, &alone]);
    let held = ["! media r", "! controller a", "! controller b"];
    assert_eq!(lines(&served(&now, &[]), &then, false), held);
}

/// Any controller may mention the pool, the serial number and the NQN of its subsystem. Moving the
/// mention to another one changes nothing that is served, so no controller must stay for it.
#[test]
fn a_pool_that_another_controller_mentions_is_the_same_pool() {
    let null = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"8GiB\"\n";
    let ram = "[[media]]\nname = \"r\"\nkind = \"ram\"\nsize = \"8GiB\"\n";
    let said = format!("{POOL}serial = \"x\"\nsubnqn = \"nqn.2026-01.example:s\"\n");
    let now = with(&[null, ram, &in_s("a", &said), &in_s("b", ""), &in_s("c", "")]);
    let mut model = Model::of(&from_toml(&now).unwrap());
    model.served.hosts.insert("c".into());
    model.consent = false;
    let then = with(&[
        null,
        &ram.replace("ram", "null"),
        &NAMESPACE.replace("\"n\"", "\"x\""),
        &NAMESPACE
            .replace("\"n\"", "\"y\"")
            .replace("\"m\"", "\"r\""),
        &in_s("a", "namespaces = [\"y\"]\n"),
        &in_s("b", "namespaces = [\"x\"]\n"),
        &in_s("c", &said),
    ]);
    let expected = [
        "+ namespace x: on medium m, 0B..4GiB",
        "+ namespace y: on medium r, 0B..4GiB",
        "+ namespace y attached to controller a",
        "+ namespace x attached to controller b",
        "! media r",
    ];
    assert_eq!(lines(&model.served, &then, false), expected);
    let wanted = Objects::of(&from_toml(&then).unwrap());
    let first = plan(&model.served, &wanted, false).unwrap();
    model.do_all(&first, first.steps.len());
    assert_eq!(
        find(&model.served.config.controller, "a").unwrap().pool,
        [""; 0]
    );
    assert_eq!(
        find(&model.served.config.controller, "c").unwrap().pool,
        ["m"]
    );
    assert_eq!(lines(&model.served, &then, false), ["! media r"]);
}

/// A namespace that stays keeps its home, so a pool that its medium is to be in waits, and the rest
/// of the file is applied.
#[test]
fn a_pool_waits_for_a_namespace_of_a_host_on_its_medium() {
    let tenant = "[[tenant]]\nname = \"t\"\n";
    let now = with(&[FILE, NAMESPACE, CONTROLLER]);
    let then = with(&[FILE, &in_s("p", POOL), tenant]);
    let expected = [
        "+ tenant t: burst 10ms, class fair, weight 100",
        "! namespace n",
        "! controller c",
        "! controller p",
    ];
    assert_eq!(lines(&served(&now, &["c"]), &then, false), expected);
}

/// A host's subsystem keeps its serial number, and thus the controller that states it. Another one
/// that states nothing can leave.
#[test]
fn only_who_states_what_a_subsystem_is_waits_with_it() {
    let now = with(&[
        &in_s("a", ""),
        &in_s("b", "serial = \"x\"\n"),
        &in_s("c", ""),
    ]);
    let then = now.replace("subsystem = \"s\"\n", "");
    let expected = [
        "- controller a: to be recreated: subsystem cannot change",
        "+ controller a: vfio-user:/a, no namespaces",
        "! controller b",
        "! controller c",
    ];
    assert_eq!(lines(&served(&now, &["c"]), &then, false), expected);
}

/// An operator has detached a namespace from a controller that lists it. It is recreated, and the
/// plan ends before its last step: the next one does not attach it where the first would not have.
#[test]
fn who_lists_a_namespace_that_it_does_not_have_does_not_get_it_by_a_second_plan() {
    let now = with(&[
        FILE,
        NAMESPACE,
        &in_s("a", "sample = 32\n"),
        &in_s("b", "namespaces = [\"n\"]\n"),
    ]);
    let then = now
        .replace("\"a\"\nsize", "\"other\"\nsize")
        .replace("32", "16");
    let mut model = Model::of(&from_toml(&now).unwrap());
    let users = &mut model.served.placed.get_mut("n").unwrap().controllers;
    *users = BTreeSet::from(["a".to_owned()]);
    let wanted = Objects::of(&from_toml(&then).unwrap());
    let first = plan(&model.served, &wanted, true).unwrap();
    model.do_all(&first, first.steps.len() - 1);
    let last = ["~ controller a: sample 32 -> 16"];
    assert_eq!(lines(&model.served, &then, true), last);
}
