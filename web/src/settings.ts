// Theme and motion: what the system says, unless the person says otherwise.

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
export const MOTIONS = ["system", "reduced"] as const;
export type Motion = (typeof MOTIONS)[number];

function kept<T extends string>(key: string, all: readonly T[]): T {
  const value = localStorage.getItem(`nvmirage-${key}`) as T | null;
  return value !== null && all.includes(value) ? value : (all[0] as T);
}

export const theme = (): Theme => kept("theme", THEMES);
export const motion = (): Motion => kept("motion", MOTIONS);

const told = new Set<() => void>();

/** Is called when colours change. */
export function onColours(tell: () => void): () => void {
  told.add(tell);
  return () => told.delete(tell);
}

export function setTheme(to: Theme): void {
  localStorage.setItem("nvmirage-theme", to);
  apply();
}

export function setMotion(to: Motion): void {
  localStorage.setItem("nvmirage-motion", to);
  apply();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

export function apply(): void {
  const root = document.documentElement;
  const chosen = theme();
  root.dataset["theme"] = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
  root.dataset["motion"] = motion() === "reduced" || still.matches ? "reduced" : "full";
  for (const tell of told) tell();
}

export function watch(): void {
  dark.addEventListener("change", apply);
  still.addEventListener("change", apply);
  apply();
}

/** A colour of the style sheet. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
