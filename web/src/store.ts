// What the page knows: it asks once a second while it is seen, and tells those who show it.

import { useEffect, useState } from "preact/hooks";

import * as api from "./api.ts";
import { History } from "./history.ts";
import type { Happening, Stats } from "./types.ts";

export type Connection =
  | { is: "connecting" }
  | { is: "live" }
  | { is: "lost"; since: number; why: string }
  | { is: "locked"; wrong: boolean }
  | { is: "refused"; why: string };

const EVERY_MS = 1000;
/** Events that are kept. */
const EVENTS = 500;

class Store {
  connection: Connection = { is: "connecting" };
  stats: Stats | null = null;
  history = new History();
  events: Happening[] = [];
  eventsLost = 0;
  paused = false;
  /** Counts changes: whoever shows something is told of them. */
  turn = 0;
  private readonly told = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hearing: AbortController | null = null;
  private lastEvent: number | null = 0;
  private asking = false;

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
    this.connection = { is: "connecting" };
    this.tell();
    this.wake();
  }

  private wake(): void {
    clearTimeout(this.timer);
    if (document.hidden || this.paused) return;
    void this.poll();
  }

  private async poll(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    const begun = performance.now();
    try {
      const stats = await api.stats();
      // a server that was started anew counts its events anew, too
      if (this.stats !== null && stats.time_ns < this.stats.time_ns) {
        this.hearing?.abort();
        this.hearing = null;
        this.lastEvent = 0;
      }
      this.stats = stats;
      this.history.add(stats);
      this.connection = { is: "live" };
      this.hear();
    } catch (error) {
      this.failed(error);
    } finally {
      this.asking = false;
    }
    this.tell();
    if (document.hidden || this.paused || this.connection.is === "locked") return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.poll(), Math.max(100, EVERY_MS - (performance.now() - begun)));
  }

  private failed(error: unknown): void {
    const now = Date.now();
    if (error instanceof api.Problem && error.status === 401) {
      const asked = this.connection.is === "connecting" && sessionStorage.getItem("nvmirage-token") !== null;
      this.connection = { is: "locked", wrong: asked };
      this.hearing?.abort();
      return;
    }
    this.history.addGap(now);
    if (error instanceof api.Problem) {
      this.connection = { is: "refused", why: error.detail };
      return;
    }
    const since = this.connection.is === "lost" ? this.connection.since : now;
    this.connection = { is: "lost", since, why: error instanceof Error ? error.message : String(error) };
    this.hearing?.abort();
  }

  /** Hears of events, unless it does. */
  private hear(): void {
    if (this.hearing !== null) return;
    const hearing = new AbortController();
    this.hearing = hearing;
    const each = (event: Happening | null) => {
      if (event === null) {
        this.eventsLost += 1;
        this.lastEvent = null;
        return;
      }
      this.lastEvent = event.id;
      this.events.push(event);
      if (this.events.length > EVENTS) this.events.splice(0, this.events.length - EVENTS);
    };
    const end = () => {
      if (this.hearing === hearing) this.hearing = null;
    };
    // what ends it is seen by the next question for numbers, after which this begins again
    api.events(this.lastEvent, each, hearing.signal).then(end, end);
  }
}

export const store = new Store();

/** Shows anew whenever something has come. */
export function useStore(): Store {
  const [, set] = useState(0);
  useEffect(() => store.subscribe(() => set(store.turn)), []);
  return store;
}
