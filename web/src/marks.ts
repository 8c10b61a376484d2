// Times that something was done at, which charts mark.

export interface Mark {
  ms: number;
  label: string;
}

/** Differs where marks do: there may be as many as before, and others. */
export function keyOf(marks: readonly Mark[]): string {
  return JSON.stringify(marks.map(({ ms, label }) => [ms, label]));
}
