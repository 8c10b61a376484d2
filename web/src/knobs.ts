// Parameters of a timing as knobs: a slider multiplies what is there, and the result is written as a configuration has it.

import { duration } from "./format.ts";
import type { Parameter } from "./types.ts";

/** Steps of a slider to each side; the last ones are a tenth and ten times. */
export const STEPS = 40;

/** Whether a slider makes sense for it. */
export function slides(parameter: Parameter): boolean {
  return parameter.applies === "live" && parameter.raw > 0 && ["time", "bandwidth", "rate"].includes(parameter.unit);
}

/** Whether a drive has what it is about: one with two bits in a cell has two types of flash pages. */
function isUsed({ name }: Parameter, all: readonly Parameter[]): boolean {
  const type = /_cell(\d)$/.exec(name)?.[1];
  const bits = all.find((one) => one.name === "cell_bits")?.raw;
  return type === undefined || bits === undefined || Number(type) < bits;
}

/** Those that change something now, by the part of the drive that they are of. */
export function groups(all: readonly Parameter[]): Map<string, Parameter[]> {
  const found = new Map<string, Parameter[]>();
  for (const one of all) {
    if (one.applies === "live" && isUsed(one, all)) found.set(one.group, [...(found.get(one.group) ?? []), one]);
  }
  return found;
}

/** The value at a step of its slider, with three digits; 0 is what is there now. */
export function atStep(parameter: Parameter, step: number): string {
  if (step === 0) return parameter.value;
  const exact = parameter.raw * 10 ** (step / STEPS);
  const digit = 10 ** Math.max(0, Math.floor(Math.log10(exact)) - 2);
  const raw = Math.max(1, Math.round(Math.round(exact / digit) * digit));
  switch (parameter.unit) {
    case "time":
      return duration(raw);
    case "rate":
      return `${raw}/s`;
    default:
      return `${raw}B/s`;
  }
}

/** What is to be sent of a form: those parameters whose text is another than before. */
export function changed(parameters: readonly Parameter[], texts: ReadonlyMap<string, string>): Record<string, string> {
  const found: Record<string, string> = {};
  for (const parameter of parameters) {
    const text = texts.get(parameter.name)?.trim();
    if (text !== undefined && text !== "" && text !== parameter.value && parameter.applies === "live") {
      found[parameter.name] = text;
    }
  }
  return found;
}
