// Numbers as people read them, with the units of the command line.

/** What stands where there is no number. */
export const NONE = "–";

function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value: number | null | undefined, steps: readonly (readonly [number, string])[]): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  for (const [size, unit] of steps) {
    // 999.6 of a unit is shown as 1 of the next
    if (Math.abs(value) >= size * 0.9995) return `${short(value / size)}${unit}`;
  }
  const [size, unit] = steps[steps.length - 1] ?? [1, ""];
  return `${short(value / size)}${unit}`;
}

/** A count or a rate: `12.3 k`. */
export function amount(value: number | null | undefined): string {
  return scaled(value, [
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
    [1, ""],
  ]);
}

/** Nanoseconds: `61.4 us`. */
export function time(ns: number | null | undefined): string {
  return scaled(ns, [
    [1e9, " s"],
    [1e6, " ms"],
    [1e3, " us"],
    [1, " ns"],
  ]);
}

/** Bytes: `1.5 GiB`. */
export function bytes(value: number | null | undefined): string {
  return scaled(value, [
    [2 ** 40, " TiB"],
    [2 ** 30, " GiB"],
    [2 ** 20, " MiB"],
    [2 ** 10, " KiB"],
    [1, " B"],
  ]);
}

/** Bytes in a second: `350 MiB/s`. */
export function bandwidth(value: number | null | undefined): string {
  const text = bytes(value);
  return text === NONE ? NONE : `${text}/s`;
}

/** A part of one: `12.5 %`. */
export function percent(part: number | null | undefined): string {
  return part === null || part === undefined || !Number.isFinite(part) ? NONE : `${(part * 100).toFixed(1)} %`;
}

/** Whole numbers with groups: `1,234,567`. */
export function whole(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? NONE : Math.round(value).toLocaleString("en-US");
}

/** A change from one number to another: `+50.0 us (+82 %)`. */
export function change(before: number | null, after: number | null, shown: (value: number) => string): string {
  if (before === null || after === null) return NONE;
  const by = after - before;
  const sign = by < 0 ? "−" : "+";
  const part = before === 0 ? "" : ` (${sign}${Math.abs((by / before) * 100).toFixed(0)} %)`;
  return `${sign}${shown(Math.abs(by))}${part}`;
}

/** The time of the day. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB", { hour12: false });
}

/** Latencies as a parameter writes them: nanoseconds to `60us`, exactly. */
export function duration(ns: number): string {
  const whole = Math.round(ns);
  for (const [size, unit] of [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "us"],
  ] as const) {
    if (whole !== 0 && whole % size === 0) return `${whole / size}${unit}`;
  }
  return `${whole}ns`;
}
