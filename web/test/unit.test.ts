// What is computed, against values that are worked out by hand or by another method.

import assert from "node:assert/strict";
import { test } from "node:test";

import { authorization, eventsOf, tokenOf } from "../src/api.ts";
import * as format from "../src/format.ts";
import { Happenings, KEPT as EVENTS } from "../src/happenings.ts";
import { addToColumn, count, difference, merged, percentile, row, ROWS, rowStart } from "../src/histogram.ts";
import { began, between, History, isAnother, KEPT, MEMORY, MOST, MOST_TENANTS, PER_CONTROLLER, reactorParts } from "../src/history.ts";
import { atStep, changed, groups, slides } from "../src/knobs.ts";
import { keyOf } from "../src/marks.ts";
import type { Bucket, Controller, Happening, Parameter, Reactor, Stats, Tenant } from "../src/types.ts";

test("differences are what was counted between two answers", () => {
  assert.deepEqual(difference([[10, 5], [20, 3]], [[10, 2]]), [[10, 3], [20, 3]]);
  assert.deepEqual(difference([[10, 5]], [[10, 5]]), []);
  // a count that shrank, or a bucket that is gone, began anew
  assert.deepEqual(difference([[10, 1], [20, 9]], [[10, 5], [20, 3]]), [[10, 1], [20, 9]]);
  assert.deepEqual(difference([[20, 9]], [[10, 5], [20, 3]]), [[20, 9]]);
});

test("percentiles are those of the sorted list by nearest rank", () => {
  // the same by sorting everything, of random buckets
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  for (let turn = 0; turn < 200; turn += 1) {
    const buckets: Bucket[] = [];
    let at = 0;
    for (let index = 0; index < 1 + random(8); index += 1) {
      at += 1 + random(100);
      buckets.push([at, 1 + random(20)]);
    }
    const list = buckets.flatMap(([last, n]) => Array.from({ length: n }, () => last));
    for (const thousandths of [1, 500, 900, 990, 999, 1000]) {
      const rank = Math.max(1, Math.floor((list.length * thousandths + 999) / 1000));
      assert.equal(percentile(buckets, thousandths / 1000), list[rank - 1]);
    }
  }
  assert.equal(percentile([], 0.5), null);
});

test("distributions of several are added up", () => {
  const sum = merged([[[30, 1], [40, 2]], [[10, 4], [30, 5]], []]);
  assert.deepEqual(sum, [[10, 4], [30, 6], [40, 2]]);
  assert.equal(count(sum), 12);
});

test("rows of the heat map have the latencies that they say", () => {
  assert.equal(rowStart(0), 1024);
  assert.equal(rowStart(4), 2048);
  for (let index = 0; index < ROWS; index += 1) {
    assert.equal(row(rowStart(index) + 1), index);
    assert.equal(row(rowStart(index + 1) - 1), index);
  }
  assert.equal(row(0), 0);
  assert.equal(row(Number.MAX_SAFE_INTEGER), ROWS - 1);
  const column = new Uint16Array(ROWS);
  addToColumn(column, [[1500, 3], [1600, 4], [1, 1]]);
  assert.equal(column[row(1500)], row(1500) === row(1600) ? 7 : 3);
  addToColumn(column, [[1500, 1e6]]);
  assert.equal(column[row(1500)], 65535);
});

test("numbers are shown with the units of the command line", () => {
  assert.equal(format.time(61_400), "61.4 us");
  assert.equal(format.time(950), "950 ns");
  assert.equal(format.time(999_700), "1.00 ms");
  assert.equal(format.time(2_500_000_000), "2.50 s");
  assert.equal(format.time(null), "–");
  assert.equal(format.bytes(1536), "1.50 KiB");
  assert.equal(format.bandwidth(350 * 2 ** 20), "350 MiB/s");
  assert.equal(format.amount(12_345), "12.3 k");
  assert.equal(format.amount(0), "0");
  assert.equal(format.percent(0.125), "12.5 %");
  assert.equal(format.whole(1234567), "1,234,567");
  assert.equal(format.change(60_000, 110_000, format.time), "+50 us (+83 %)");
  assert.equal(format.change(100_000, 50_000, format.time), "−50 us (−50 %)");
  assert.equal(format.change(null, 5, format.time), "–");
  assert.equal(format.duration(60_000), "60us");
  assert.equal(format.duration(1_500), "1500ns");
  assert.equal(format.duration(0), "0ns");
});

const knob = (raw: number, unit: string, value: string): Parameter => ({
  name: "read_latency",
  group: "device",
  value,
  raw,
  unit,
  range: "",
  applies: "live",
  description: "",
});

test("knobs are grouped, and a drive of two bits in a cell has no third type of pages", () => {
  const of = (name: string, group: string, applies: Parameter["applies"] = "live"): Parameter => ({ ...knob(2, "count", "2"), name, group, applies });
  const cells = ["read_cell0", "read_cell1", "read_cell2", "read_cell3"].map((name) => of(name, "cell times"));
  const all = [of("cell_bits", "geometry", "fixed"), ...cells, of("erase", "cell times"), of("seed", "chance")];
  const names = [...groups(all)].map(([group, parameters]) => [group, parameters.map(({ name }) => name)]);
  assert.deepEqual(names, [
    ["cell times", ["read_cell0", "read_cell1", "erase"]],
    ["chance", ["seed"]],
  ]);
});

test("a knob's steps are texts that the server reads", () => {
  const time = knob(60_000, "time", "60us");
  assert.equal(atStep(time, 0), "60us");
  assert.equal(atStep(time, 40), "600us");
  assert.equal(atStep(time, -40), "6us");
  assert.equal(atStep(knob(1, "time", "1ns"), -40), "1ns");
  assert.equal(atStep(knob(2 ** 30, "bandwidth", "1GiB/s"), 40), "10700000000B/s");
  assert.equal(atStep(knob(550_000, "rate", "550K/s"), 40), "5500000/s");
  // what is off stays off until it is written
  assert.equal(slides(knob(0, "bandwidth", "none")), false);
  assert.equal(slides({ ...time, applies: "fixed" }), false);
});

test("only what differs and may change is sent", () => {
  const one = knob(60_000, "time", "60us");
  const two = { ...knob(1, "count", "1"), name: "channels", applies: "fixed" as const };
  const texts = new Map([["read_latency", " 80us "], ["channels", "2"], ["unknown", "1"]]);
  assert.deepEqual(changed([one, two], texts), { read_latency: "80us" });
  assert.deepEqual(changed([one], new Map([["read_latency", "60us"]])), {});
  assert.deepEqual(changed([one], new Map([["read_latency", ""]])), {});
});

function controller(reads: number, buckets: Bucket[], sum: number, name = "c"): Controller {
  const keys: Partial<Controller> = {
    name,
    namespaces: [],
    listen: "",
    sample: 256,
    doorbells: "auto",
    model_number: "",
    attached: true,
    doorbell_messages: 0,
    placement: [],
    commands: { read: reads, write: 0 },
    bytes: { read: reads * 4096, write: 0 },
    media_errors: 0,
    completion_queues: [],
    latency: [{ operation: "read", count: count(buckets), sum_ns: sum, buckets }],
    stages: [{ stage: "model", sum_ns: sum / 2 }],
    errors_by_status: [{ status: "x", count: reads / 100 }],
  };
  return keys as Controller;
}

test("a second is the difference over its time", () => {
  const before = controller(1000, [[50_000, 10]], 500_000);
  const now = controller(21_000, [[50_000, 10], [100_000, 100]], 10_500_000);
  const second = between(now, before, 2);
  assert.equal(second.numbers.read_iops, 10_000);
  assert.equal(second.numbers.read_bandwidth, 10_000 * 4096);
  assert.equal(second.numbers.p50, 100_000);
  assert.equal(second.numbers.errors, 100);
  assert.equal(second.numbers.mean, 100_000);
  // Little: 10,000 in a second, each there for 100 us
  assert.equal(second.numbers.depth, 1);
  assert.equal(second.stages["model"], 50_000);
});

const PROCESS = { pid: 1, version: "", survives: false, generation: 1 };

function stats(seconds: number, controllers: Controller[]): Stats {
  return { time_ns: seconds * 1e9, unix_time_ms: seconds * 1000, process: PROCESS, reactors: [], media: [], namespaces: [], tenants: [], controllers };
}

test("history has the last ten minutes, and no second that was longer", () => {
  const history = new History();
  for (let s = 1; s <= KEPT + 50; s += 1) history.add(stats(s, [controller(s * 10, [], 0)]));
  assert.equal(history.timeline.length, KEPT);
  assert.equal(history.timeline.seconds()[0], 51);
  const its = history.controllers.get("c");
  assert.equal(its?.last?.numbers.read_iops, 10);
  // time that goes back has no mean
  history.add(stats(1, [controller(5, [], 0)]));
  assert.equal(history.controllers.get("c")?.last, null);
  // one that was not seen for a minute shows no mean of it as a second's
  history.add(stats(61, [controller(5000, [], 0)]));
  assert.equal(history.controllers.get("c")?.last, null);
  history.add(stats(62, []));
  assert.equal(history.controllers.size, 0);
});

test("history takes no more memory than it says, whatever the server has", () => {
  // one that has everything in every second takes what is counted for one, and so many of these fit
  const latencies: Bucket[] = Array.from({ length: ROWS }, (_, index) => [rowStart(index) + 1, 1]);
  const history = new History();
  for (let s = 1; s <= KEPT + 1; s += 1) {
    const buckets = latencies.map(([last]): Bucket => [last, s]);
    history.add(stats(s, [controller(s, buckets, s)]));
  }
  assert.equal(history.controllers.get("c")?.bytes, PER_CONTROLLER);
  assert.ok(MOST * PER_CONTROLLER <= MEMORY);
  // as book/src/howto/dashboard.md has it
  assert.deepEqual([MOST, MEMORY], [860, 128 << 20]);

  const named = (first: number, count: number, reads: number) => Array.from({ length: count }, (_, index) => controller(reads, [], 0, `c${first + index}`));
  const tenants = Array.from({ length: MOST_TENANTS + 10 }, (_, index) => ({ name: `t${index}` }) as Tenant);
  const many = new History();
  for (let s = 1; s <= 2; s += 1) many.add({ ...stats(s, named(0, MOST + 50, s * 10)), tenants });
  assert.equal(many.controllers.size, MOST);
  assert.equal(many.tenants.size, MOST_TENANTS);
  // those that have no history are in the sum all the same
  assert.equal(many.total.read_iops, (MOST + 50) * 10);
  // others come first: the last ones have a history no longer
  many.add(stats(3, [...named(5000, 20, 30), ...named(0, MOST + 50, 30)]));
  assert.equal(many.controllers.size, MOST);
  assert.ok(many.controllers.has("c5000") && !many.controllers.has(`c${MOST - 1}`));
});

test("a server that was started anew is another one, whatever its time is by then", () => {
  const at = (day_s: number, up_s: number): Stats => ({ ...stats(up_s, []), unix_time_ms: day_s * 1000 });
  assert.equal(began(at(1000, 400)), 600_000);
  assert.equal(isAnother(at(1001, 401), at(1000, 400)), false);
  assert.equal(isAnother(at(1002, 1), at(1000, 400)), true);
  // a page that was hidden for an hour sees a time that is larger than before
  assert.equal(isAnother(at(4600, 3590), at(1000, 400)), true);
  assert.equal(isAnother(at(4600, 4000), at(1000, 400)), false);
  // the clock of the day was set back, or forth a little; the machine slept, and the server's clock stood
  assert.equal(isAnother(at(900, 410), at(1000, 400)), false);
  assert.equal(isAnother(at(1100, 410), at(1000, 400)), false);
  assert.equal(isAnother(at(1300, 401), at(1000, 400)), false);
  // set back, and started anew
  assert.equal(isAnother(at(900, 3), at(1000, 400)), true);
});

test("marks differ by what they say and when, not by how many there are", () => {
  const marks = Array.from({ length: 9 }, (_, index) => ({ ms: index, label: `read_latency ${index}us` }));
  assert.equal(keyOf(marks.slice(0, 8)), keyOf(marks.slice(0, 8)));
  assert.notEqual(keyOf(marks.slice(0, 8)), keyOf(marks.slice(1, 9)));
  assert.notEqual(keyOf([{ ms: 1, label: "a" }]), keyOf([{ ms: 2, label: "a" }]));
  assert.notEqual(keyOf([{ ms: 1, label: "a" }]), keyOf([{ ms: 1, label: "b" }]));
});

test("a token is taken from behind #, even where it is written wrongly", () => {
  assert.equal(tokenOf("#token=abc"), "abc");
  assert.equal(tokenOf("#token=a%20%26b"), "a &b");
  assert.equal(tokenOf("#token=a&b"), "a&b");
  // no decoding of this: it is what somebody's token may be
  assert.equal(tokenOf("#token=50%"), "50%");
  assert.equal(tokenOf("#token=%e0%a4%a"), "%e0%a4%a");
  assert.equal(tokenOf("#token="), "");
  for (const none of ["", "#", "#/", "#/token=a", "#x&token=a"]) assert.equal(tokenOf(none), null);
});

test("what no header can carry is not sent", () => {
  assert.deepEqual(authorization("ab%c"), { Authorization: "Bearer ab%c" });
  for (const none of [null, "", "a b", "a\nb", "\u65e5", "\u00e9"]) assert.deepEqual(authorization(none), {});
});

const happening = (id: number): Happening => ({ id, time_ns: id, event: "changed", kind: "media", name: "m" });

test("events that are lost are counted, and asked for no more", () => {
  const happenings = new Happenings();
  happenings.take(happening(1));
  happenings.take(happening(2));
  assert.equal(happenings.since, 2);
  // 3 to 77 are gone: what is behind 77 is there, and comes next
  happenings.take({ lost: 75 });
  assert.deepEqual([happenings.since, happenings.lost, happenings.kept.length], [77, 75, 2]);
  happenings.take(happening(78));
  happenings.take({ lost: 2 });
  assert.deepEqual([happenings.since, happenings.lost], [80, 77]);
  for (let id = 81; id < 81 + EVENTS; id += 1) happenings.take(happening(id));
  assert.equal(happenings.kept.length, EVENTS);
  assert.equal(happenings.kept[0]?.id, 81);
});

test("a reactor's parts are of the whole", () => {
  const at = (busy: number, spun: number, slept: number, stalled: number) => ({
    reactor: 0,
    mode: "adaptive",
    commands: 0,
    busy_ns: busy,
    spinning_ns: spun,
    asleep_ns: slept,
    stalled_ns: stalled,
    sleeps: 0,
  }) as Reactor;
  assert.deepEqual(reactorParts(at(30, 10, 60, 0), at(5, 10, 10, 0)), { busy: 25 / 75, spinning: 0, asleep: 50 / 75, stalled: 0 });
  assert.equal(reactorParts(at(1, 1, 1, 1), at(1, 1, 1, 1)), null);
  assert.equal(reactorParts(at(0, 0, 5, 0), at(9, 0, 0, 0)), null);
});

test("events are read from a stream in pieces", () => {
  const text = 'id: 7\nevent: created\ndata: {"id":7,"event":"created","kind":"media","name":"m"}\n\n:\n\nevent: lost\ndata: {"lost":3}\n\nid: 8\nev';
  const [found, rest] = eventsOf(text);
  assert.deepEqual(found, [{ id: 7, event: "created", kind: "media", name: "m" }, { lost: 3 }]);
  assert.equal(rest, "id: 8\nev");
});
