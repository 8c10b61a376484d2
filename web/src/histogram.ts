// Latencies in buckets: differences of two answers, percentiles, and the rows of the heat map.

import type { Bucket } from "./types.ts";

/** What was counted between two answers. Where a count has shrunk it began again, and all of it is new. */
export function difference(now: readonly Bucket[], before: readonly Bucket[]): Bucket[] {
  const old = new Map(before);
  const found: Bucket[] = [];
  let known = 0;
  for (const [last, count] of now) {
    const was = old.get(last);
    if (was !== undefined) known += 1;
    const more = count - (was ?? 0);
    if (more < 0) return [...now];
    if (more > 0) found.push([last, more]);
  }
  return known < old.size ? [...now] : found;
}

/** The buckets of several, together, the smallest latency first. */
export function merged(all: readonly (readonly Bucket[])[]): Bucket[] {
  const sum = new Map<number, number>();
  for (const [last, count] of all.flat()) sum.set(last, (sum.get(last) ?? 0) + count);
  return [...sum].sort(([a], [b]) => a - b);
}

/** How many commands there are in buckets. */
export function count(buckets: readonly Bucket[]): number {
  return buckets.reduce((sum, [, n]) => sum + n, 0);
}

/** The latency in nanoseconds that this part of the commands does not exceed (nearest rank), known to 1/16; none of no commands. */
export function percentile(buckets: readonly Bucket[], part: number): number | null {
  const all = count(buckets);
  if (all === 0) return null;
  // parts are thousandths at the finest: what floating point adds to their product is no further rank
  const rank = Math.max(1, Math.ceil(all * part - 1e-9));
  let below = 0;
  for (const [last, n] of buckets) {
    below += n;
    if (below >= rank) return last;
  }
  return null;
}

/** Rows of the heat map: so many in each power of two. */
export const ROWS_PER_OCTAVE = 4;
const FIRST_OCTAVE = 10;
const LAST_OCTAVE = 34;
/** Rows from 2^10 ns (1 us) to 2^34 ns (17 s); the first and the last have what is beyond. */
export const ROWS = (LAST_OCTAVE - FIRST_OCTAVE) * ROWS_PER_OCTAVE;

/** The row of a latency. */
export function row(ns: number): number {
  const at = Math.floor((Math.log2(Math.max(ns, 1)) - FIRST_OCTAVE) * ROWS_PER_OCTAVE);
  return Math.min(Math.max(at, 0), ROWS - 1);
}

/** The least latency of a row, in nanoseconds. */
export function rowStart(index: number): number {
  return 2 ** (FIRST_OCTAVE + index / ROWS_PER_OCTAVE);
}

/** Adds buckets to the rows of a column, whose counts end at 65,535. */
export function addToColumn(column: Uint16Array, buckets: readonly Bucket[]): void {
  for (const [last, n] of buckets) {
    const at = row(last);
    column[at] = Math.min((column[at] ?? 0) + n, 0xffff);
  }
}
