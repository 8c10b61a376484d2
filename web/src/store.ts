// What the page knows: it asks once a second while it is seen, and tells those who show it.

import { useEffect, useState } from "preact/hooks";

import * as api from "./api.ts";
import { Happenings } from "./happenings.ts";
import { began, History, isAnother } from "./history.ts";
import type { Happening, Lost, Stats } from "./types.ts";

export type Connection =
  | { is: "connecting" }
  | { is: "live" }
  | { is: "lost"; since: number; why: string }
  | { is: "locked"; wrong: boolean }
  | { is: "refused"; why: string };

const EVERY_MS = 1000;

/** What the server counted before. One that keeps nothing, an older one, has no past. */
async function recall(): Promise<Stats[]> {
  try {
    return await api.past();
  } catch {
    return [];
  }
}

export class Store {
  connection: Connection = { is: "connecting" };
  stats: Stats | null = null;
  history = new History();
  happenings = new Happenings();
  paused = false;
  /** Counts servers: one that was restarted is another one. */
  server = 0;
  /** When the server was started that took the place of another one while this page was open. */
  startedAnew: number | null = null;
  /** Counts changes: a view that shows something subscribes to it. */
  turn = 0;
  private readonly told = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hearing: AbortController | null = null;
  /** Whether the history has what the server counted before this page was open. */
  private recalled = false;
  /** The question in flight. The answer to one that is no longer here is not looked at. */
  private asking: object | null = null;

  subscribe(tell: () => void): () => void {
    this.told.add(tell);
    return () => this.told.delete(tell);
  }

  tell(): void {
    this.turn += 1;
    for (const tell of this.told) tell();
  }

  start(): void {
    document.addEventListener("visibilitychange", () => this.wake());
    this.wake();
  }

  pause(paused: boolean): void {
    this.paused = paused;
    this.tell();
    this.wake();
  }

  unlock(token: string): void {
    api.setToken(token);
    this.reconnect();
  }

  /** Begins with another token. Who gives one wants to see something, whatever was paused. */
  reconnect(): void {
    this.asking = null;
    this.stopHearing();
    this.paused = false;
    this.connection = { is: "connecting" };
    this.tell();
    this.wake();
  }

  /** Whether no view would show the answer. */
  private get isQuiet(): boolean {
    return document.hidden || this.paused;
  }

  private wake(): void {
    clearTimeout(this.timer);
    if (this.isQuiet) {
      // the server has few places for those who hear of events
      this.stopHearing();
      return;
    }
    void this.poll();
  }

  private async poll(): Promise<void> {
    if (this.asking !== null) return;
    const asking = {};
    this.asking = asking;
    const begun = performance.now();
    try {
      const stats = await api.stats();
      const past = this.recalled ? [] : await recall();
      if (this.asking !== asking) return;
      this.take(stats, past);
    } catch (error) {
      if (this.asking !== asking) return;
      this.failed(error);
    }
    this.asking = null;
    this.tell();
    if (this.isQuiet || this.connection.is === "locked") return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.poll(), Math.max(100, EVERY_MS - (performance.now() - begun)));
  }

  private take(stats: Stats, past: Stats[]): void {
    this.recalled = true;
    for (const before of past) if (before.time_ns < stats.time_ns) this.history.add(before);
    if (this.stats !== null && isAnother(stats, this.stats)) {
      // it counts everything from zero, events too, and what the one before did is not its past
      this.stopHearing();
      this.history = new History();
      this.happenings = new Happenings();
      this.server += 1;
      this.startedAnew = began(stats);
    }
    this.stats = stats;
    this.history.add(stats);
    this.connection = { is: "live" };
    this.hear();
  }

  private failed(error: unknown): void {
    const now = Date.now();
    if (error instanceof api.Problem && error.status === 401) {
      const before = this.connection;
      const wrong = (before.is === "connecting" && api.hasToken()) || (before.is === "locked" && before.wrong);
      this.connection = { is: "locked", wrong };
      this.stopHearing();
      return;
    }
    this.history.addGap(now);
    if (error instanceof api.Problem) {
      this.connection = { is: "refused", why: error.detail };
      return;
    }
    const since = this.connection.is === "lost" ? this.connection.since : now;
    this.connection = { is: "lost", since, why: error instanceof Error ? error.message : String(error) };
    this.stopHearing();
  }

  /** Hears of events, unless it does. */
  private hear(): void {
    if (this.hearing !== null || this.isQuiet) return;
    const hearing = new AbortController();
    this.hearing = hearing;
    const each = (news: Happening | Lost) => {
      // the question in flight when it was ended comes again
      if (this.hearing === hearing) this.happenings.take(news);
    };
    const end = () => {
      if (this.hearing === hearing) this.hearing = null;
    };
    // what ends it is seen by the next question for numbers, after which this begins again
    api.events(this.happenings.since, each, hearing.signal).then(end, end);
  }

  private stopHearing(): void {
    this.hearing?.abort();
    this.hearing = null;
  }
}

export const store = new Store();

/** Draws again whenever an answer has come. */
export function useStore(): Store {
  const [, set] = useState(0);
  useEffect(() => store.subscribe(() => set(store.turn)), []);
  return store;
}
