// Ten minutes of numbers in rings. They take MEMORY bytes at most for controllers, 2.4 MB for tenants and 15 KB beside, whatever the
// server has and however long the page is open; what is beyond that has no history. Of answers only the last one is kept.

import * as histogram from "./histogram.ts";
import type { Bucket, Controller, Reactor, Stats, Tenant } from "./types.ts";

/** Samples that are kept: one a second for ten minutes. */
export const KEPT = 600;
/** Tenants with a history: those that the server names first. */
export const MOST_TENANTS = 1024;
/** Bytes that the histories of all controllers take at most. */
export const MEMORY = 128 << 20;

/** When samples were taken. All series of a page have the same places. */
export class Timeline {
  private readonly times = new Float64Array(KEPT);
  private taken = 0;

  /** Makes a place, and says which. */
  push(ms: number): number {
    const at = this.taken % KEPT;
    this.times[at] = ms / 1000;
    this.taken += 1;
    return at;
  }

  /** How many places have something. */
  get length(): number {
    return Math.min(this.taken, KEPT);
  }

  /** Places, the oldest first. */
  places(): number[] {
    const length = this.length;
    const first = this.taken - length;
    return Array.from({ length }, (_, i) => (first + i) % KEPT);
  }

  /** Seconds since 1970, the oldest first. */
  seconds(): number[] {
    return this.places().map((at) => this.times[at] ?? 0);
  }
}

/** Numbers over time, with one place for each of a timeline. */
export class Series {
  private readonly values = new Float32Array(KEPT).fill(Number.NaN);

  set(at: number, value: number | null): void {
    this.values[at] = value ?? Number.NaN;
  }

  get(at: number): number | null {
    const value = this.values[at];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  get bytes(): number {
    return this.values.byteLength;
  }
}

export const NUMBERS = [
  "read_iops",
  "write_iops",
  "read_bandwidth",
  "write_bandwidth",
  "p50",
  "p99",
  "p999",
  "mean",
  "in_flight",
  "depth",
  "errors",
] as const;
export type NumberName = (typeof NUMBERS)[number];

/** Stages in the order that commands go through them. */
export const STAGES = ["ring", "fairness", "translation", "medium", "model", "interrupt"] as const;

/** Bytes of a controller's history at most: each number and each stage of every second, and a column of the heat map. */
export const PER_CONTROLLER =
  KEPT * ((NUMBERS.length + STAGES.length) * Float32Array.BYTES_PER_ELEMENT + histogram.ROWS * Uint16Array.BYTES_PER_ELEMENT);
/** Controllers with a history: those that the server names first. */
export const MOST = Math.floor(MEMORY / PER_CONTROLLER);

function series<K extends string>(names: readonly K[]): Record<K, Series> {
  return Object.fromEntries(names.map((name) => [name, new Series()])) as Record<K, Series>;
}

/** What a controller did in a second. */
export interface Second {
  numbers: Record<NumberName, number | null>;
  /** Nanoseconds of a command on average, by stage. */
  stages: Record<string, number | null>;
  /** Latencies, by operation. */
  latency: Map<string, Bucket[]>;
}

function sum(values: ByDirectionLike): number {
  return values.read + values.write;
}
interface ByDirectionLike {
  read: number;
  write: number;
}

export const TOTALS = ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"] as const;
type Totals = Record<(typeof TOTALS)[number], number>;

function perSecond(now: number, before: number, seconds: number): number {
  return Math.max(0, now - before) / seconds;
}

function totalsBetween(now: Controller, before: Controller, seconds: number): Totals {
  return {
    read_iops: perSecond(now.commands.read, before.commands.read, seconds),
    write_iops: perSecond(now.commands.write, before.commands.write, seconds),
    read_bandwidth: perSecond(now.bytes.read, before.bytes.read, seconds),
    write_bandwidth: perSecond(now.bytes.write, before.bytes.write, seconds),
  };
}

/** What was done between two answers, `seconds` apart. */
export function between(now: Controller, before: Controller, seconds: number): Second {
  const latency = new Map<string, Bucket[]>();
  let watched = 0;
  let took = 0;
  for (const one of now.latency) {
    const old = before.latency.find((other) => other.operation === one.operation);
    const buckets = histogram.difference(one.buckets, old?.buckets ?? []);
    latency.set(one.operation, buckets);
    const began = old === undefined || one.count < old.count;
    watched += began ? one.count : one.count - old.count;
    took += began ? one.sum_ns : Math.max(0, one.sum_ns - old.sum_ns);
  }
  const all = histogram.merged([...latency.values()]);
  const iops = perSecond(sum(now.commands), sum(before.commands), seconds);
  const mean = watched > 0 ? took / watched : null;
  const failed = (controller: Controller) => controller.errors_by_status.reduce((n, one) => n + one.count, 0);
  const inFlight = now.completion_queues.map((queue) => queue.in_flight);
  const stages: Record<string, number | null> = {};
  for (const { stage, sum_ns } of now.stages) {
    const old = before.stages.find((other) => other.stage === stage)?.sum_ns ?? 0;
    stages[stage] = watched > 0 && sum_ns >= old ? (sum_ns - old) / watched : null;
  }
  return {
    numbers: {
      ...totalsBetween(now, before, seconds),
      p50: histogram.percentile(all, 0.5),
      p99: histogram.percentile(all, 0.99),
      p999: histogram.percentile(all, 0.999),
      mean,
      in_flight: inFlight.every((n) => n !== undefined) ? inFlight.reduce<number>((n, one) => n + (one ?? 0), 0) : null,
      // Little's law: those in flight are those that come in a second times the seconds that each is there
      depth: mean === null ? (iops === 0 ? 0 : null) : iops * (mean / 1e9),
      errors: perSecond(failed(now), failed(before), seconds),
    },
    stages,
    latency,
  };
}

/** A controller's last ten minutes. */
export class ControllerHistory {
  readonly numbers = series(NUMBERS);
  readonly stages = series(STAGES);
  last: Second | null = null;
  private heat: (Uint16Array | undefined)[] = [];

  set(at: number, second: Second | null): void {
    this.last = second;
    for (const name of NUMBERS) this.numbers[name].set(at, second?.numbers[name] ?? null);
    for (const stage of STAGES) this.stages[stage].set(at, second?.stages[stage] ?? null);
    const buckets = second === null ? [] : [...second.latency.values()];
    if (buckets.every((some) => some.length === 0)) {
      this.heat[at] = undefined;
      return;
    }
    const column = this.heat[at] ?? new Uint16Array(histogram.ROWS);
    column.fill(0);
    for (const some of buckets) histogram.addToColumn(column, some);
    this.heat[at] = column;
  }

  /** Watched commands by row, or none. */
  column(at: number): Uint16Array | undefined {
    return this.heat[at];
  }

  get bytes(): number {
    const rows = [...Object.values(this.numbers), ...Object.values(this.stages)].reduce((all, one) => all + one.bytes, 0);
    return this.heat.reduce((all, column) => all + (column?.byteLength ?? 0), rows);
  }
}

export const REACTOR_STATES = ["busy", "spinning", "asleep", "stalled"] as const;
export type ReactorState = (typeof REACTOR_STATES)[number];

/** Parts of a reactor's time between two answers. */
export function reactorParts(now: Reactor, before: Reactor): Record<ReactorState, number> | null {
  const took = {
    busy: now.busy_ns - before.busy_ns,
    spinning: now.spinning_ns - before.spinning_ns,
    asleep: now.asleep_ns - before.asleep_ns,
    stalled: now.stalled_ns - before.stalled_ns,
  };
  const all = Object.values(took).reduce((a, b) => a + b, 0);
  if (all <= 0 || Object.values(took).some((part) => part < 0)) return null;
  return {
    busy: took.busy / all,
    spinning: took.spinning / all,
    asleep: took.asleep / all,
    stalled: took.stalled / all,
  };
}

/** What a tenant had in a second. */
export interface TenantSecond {
  commands: number;
  bytes: number;
  capped: number;
  held: number;
}

function tenantBetween(now: Tenant, before: Tenant, seconds: number): TenantSecond {
  return {
    commands: perSecond(now.commands, before.commands, seconds),
    bytes: perSecond(now.bytes, before.bytes, seconds),
    capped: perSecond(now.capped, before.capped, seconds),
    held: perSecond(now.held, before.held, seconds),
  };
}

/** When a server was started, by the clock of the day: milliseconds since 1970. */
export function began(stats: Stats): number {
  return stats.unix_time_ms - stats.time_ns / 1e6;
}

/**
 * Whether an answer is another server's than the one before it. A page that was hidden may see its time further than it was; but it
 * has begun after the other one answered. Where the server's clock and that of the day drift apart, or the machine has slept, this
 * holds all the same.
 */
export function isAnother(now: Stats, before: Stats): boolean {
  return now.time_ns < before.time_ns || began(now) > before.unix_time_ms;
}

/** Everything that the page remembers of the server. */
export class History {
  readonly timeline = new Timeline();
  readonly controllers = new Map<string, ControllerHistory>();
  readonly totals = series(TOTALS);
  /** What all controllers did in the last second, with those that have no history. */
  total: Totals = { read_iops: 0, write_iops: 0, read_bandwidth: 0, write_bandwidth: 0 };
  readonly tenants = new Map<string, Series>();
  reactors = new Map<number, Record<ReactorState, number>>();
  tenantSeconds = new Map<string, TenantSecond>();
  private before: Stats | null = null;

  /** Adds an answer. */
  add(stats: Stats): void {
    const before = this.before;
    this.before = stats;
    const at = this.timeline.push(stats.unix_time_ms);
    const seconds = before === null ? 0 : (stats.time_ns - before.time_ns) / 1e9;
    // a page that was hidden shows no mean of that time as a second's
    const comparable = before !== null && seconds > 0 && seconds < 10;
    this.forgetOthers(stats);
    const old = new Map(comparable ? before.controllers.map((one) => [one.name, one]) : []);
    this.total = { read_iops: 0, write_iops: 0, read_bandwidth: 0, write_bandwidth: 0 };
    stats.controllers.forEach((controller, index) => {
      const was = old.get(controller.name);
      if (index < MOST) {
        const history = this.controllers.get(controller.name) ?? new ControllerHistory();
        this.controllers.set(controller.name, history);
        history.set(at, was === undefined ? null : between(controller, was, seconds));
      }
      if (was === undefined) return;
      const its = totalsBetween(controller, was, seconds);
      for (const name of TOTALS) this.total[name] += its[name];
    });
    for (const name of TOTALS) this.totals[name].set(at, comparable ? this.total[name] : null);
    this.addReactors(stats, comparable ? before : null);
    this.addTenants(stats, comparable ? before : null, seconds, at);
  }

  /** Notes that there is nothing known of this second. */
  addGap(ms: number): void {
    const at = this.timeline.push(ms);
    this.before = null;
    for (const history of this.controllers.values()) history.set(at, null);
    for (const name of TOTALS) this.totals[name].set(at, null);
    for (const one of this.tenants.values()) one.set(at, null);
  }

  /** Those that are gone, and those that others have come before. */
  private forgetOthers(stats: Stats): void {
    const there = new Set(stats.controllers.slice(0, MOST).map((one) => one.name));
    for (const name of this.controllers.keys()) if (!there.has(name)) this.controllers.delete(name);
    const tenants = new Set(stats.tenants.slice(0, MOST_TENANTS).map((one) => one.name));
    for (const name of this.tenants.keys()) if (!tenants.has(name)) this.tenants.delete(name);
  }

  private addReactors(stats: Stats, before: Stats | null): void {
    this.reactors = new Map();
    for (const reactor of stats.reactors) {
      const was = before?.reactors.find((one) => one.reactor === reactor.reactor);
      const parts = was === undefined ? null : reactorParts(reactor, was);
      if (parts !== null) this.reactors.set(reactor.reactor, parts);
    }
  }

  private addTenants(stats: Stats, before: Stats | null, seconds: number, at: number): void {
    this.tenantSeconds = new Map();
    for (const tenant of stats.tenants.slice(0, MOST_TENANTS)) {
      const was = before?.tenants.find((one) => one.name === tenant.name);
      const second = was === undefined ? null : tenantBetween(tenant, was, seconds);
      const history = this.tenants.get(tenant.name) ?? new Series();
      this.tenants.set(tenant.name, history);
      history.set(at, second?.bytes ?? null);
      if (second !== null) this.tenantSeconds.set(tenant.name, second);
    }
  }
}
