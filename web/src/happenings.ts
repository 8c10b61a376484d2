// What has happened, as far as the page has heard of it, and how much it has not.

import type { Happening, Lost } from "./types.ts";

/** Events that are kept. */
export const KEPT = 500;

export class Happenings {
  /** The last ones, the newest last. */
  readonly kept: Happening[] = [];
  /** How many were gone before they could be read. */
  lost = 0;
  /** The number that has been reached: what is behind it is asked for next. */
  since = 0;

  take(news: Happening | Lost): void {
    if ("lost" in news) {
      // the server keeps what comes behind those that are gone, and would say the same again of any number before
      this.lost += news.lost;
      this.since += news.lost;
      return;
    }
    this.since = news.id;
    this.kept.push(news);
    if (this.kept.length > KEPT) this.kept.splice(0, this.kept.length - KEPT);
  }
}
