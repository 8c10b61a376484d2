// Small parts that several pages use.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Problem } from "../api.ts";
import { store } from "../store.ts";

export const link = {
  controller: (name: string) => `#/controllers/${encodeURIComponent(name)}`,
  medium: (name: string) => `#/media/${encodeURIComponent(name)}`,
};

export function Tile({ label, value, more }: { label: string; value: string; more?: string }) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        {value}
        {more !== undefined && <small>{more}</small>}
      </dd>
    </div>
  );
}

export function Card({ title, about, wide, children }: { title: string; about?: string; wide?: boolean; children: ComponentChildren }) {
  return (
    <section class={wide === true ? "card wide" : "card"} aria-label={title}>
      <h3>{title}</h3>
      {about !== undefined && <p class="about">{about}</p>}
      {children}
    </section>
  );
}

/** Parts of a whole as a bar, with the numbers beside it. */
export function Parts({ label, parts, shown }: { label: string; parts: { name: string; part: number; colour: number }[]; shown: (part: number) => string }) {
  return (
    <div class="parts">
      <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${label}: ${parts.map((one) => `${one.name} ${shown(one.part)}`).join(", ")}`}>
        {parts.map((one, index) => {
          const before = parts.slice(0, index).reduce((sum, { part }) => sum + part, 0);
          return <rect key={one.name} class={`fill-${one.colour}`} x={before * 100} y="0" width={Math.max(0, one.part * 100)} height="10" />;
        })}
      </svg>
      <ul aria-hidden="true">
        {parts.map((one) => (
          <li key={one.name}>
            <span class={`box fill-${one.colour}`} /> {one.name} {shown(one.part)}
          </li>
        ))}
      </ul>
    </div>
  );
}

/**
 * What a cursor is at. It is seen as it is now, and read out as it was when the cursor came there: numbers that change every second
 * would not let anybody hear something else.
 */
export function Readout({ at, text }: { at: string | null; text: string }) {
  const said = useRef<{ at: string | null; text: string }>({ at: null, text: "" });
  if (said.current.at !== at) said.current = { at, text: at === null ? "" : text };
  return (
    <>
      <p class="readout">{text}</p>
      <p class="hidden" role="status">
        {said.current.text}
      </p>
    </>
  );
}

/** What went wrong, in the server's words. */
export function Alert({ error }: { error: unknown }) {
  if (error === null || error === undefined) return null;
  const title = error instanceof Problem ? `${error.title} (${error.status})` : "no answer";
  const detail = error instanceof Error ? error.message : String(error);
  return (
    <div class="alert" role="alert">
      <strong>{title}</strong>: {detail}
    </div>
  );
}

export interface Asked<T> {
  value: T | null;
  error: unknown;
  again: () => void;
}

/** Asks now, and every so often while the page is seen; what has come stays while something else goes wrong. */
export function useAsked<T>(ask: () => Promise<T>, key: string, everyMs: number): Asked<T> {
  const [state, set] = useState<{ key: string; value: T | null; error: unknown }>({ key, value: null, error: null });
  const [turn, again] = useState(0);
  useEffect(() => {
    let [ended, under] = [false, false];
    const failed = (error: unknown) => {
      // what is not there now is asked for no more: it is another page's, or of a server of another version
      if (error instanceof Problem && error.status === 404) clearInterval(timer);
      if (!ended) set((now) => ({ key, value: now.key === key ? now.value : null, error }));
    };
    const look = () => {
      if (ended || under || document.hidden || store.paused || store.connection.is !== "live") return;
      under = true;
      ask()
        .then((value) => {
          if (!ended) set({ key, value, error: null });
        }, failed)
        .finally(() => {
          under = false;
        });
    };
    const timer = setInterval(look, everyMs);
    look();
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [key, turn]);
  const mine = state.key === key;
  return { value: mine ? state.value : null, error: mine ? state.error : null, again: () => again((n) => n + 1) };
}

/** Whether the contents of a box that scrolls are cut at the right. */
export function useCut(box: RefObject<HTMLElement>): boolean {
  const [isCut, set] = useState(false);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const look = () => set(element.scrollLeft + element.clientWidth < element.scrollWidth - 1);
    const sizes = new ResizeObserver(look);
    for (const one of [element, ...element.children]) sizes.observe(one);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  return isCut;
}

/** A hint below a box that is cut. Those who hear the page know that the box scrolls. */
export function CutHint({ isCut }: { isCut: boolean }) {
  return isCut ? (
    <p class="cut" aria-hidden="true">
      more columns at the right →
    </p>
  ) : null;
}

/** A table that may be wider than the page: it scrolls. */
export function Sideways({ label, children }: { label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const isCut = useCut(box);
  return (
    <>
      <div class="sideways" ref={box} tabIndex={0} role="region" aria-label={`${label}: scrolls`}>
        {children}
      </div>
      <CutHint isCut={isCut} />
    </>
  );
}
