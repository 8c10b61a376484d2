// When the page asks and hears, against a server of a few lines, without a browser.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Store } from "../src/store.ts";

/** A question for events in flight. */
interface Stream {
  since: number;
  say: (text: string) => void;
  end: () => void;
  aborted: boolean;
}

/** What the page finds around it. */
class Around {
  token: string | null = null;
  wanted: string | null = null;
  /** When the server was started, by the clock of the day. */
  started = Date.now() - 60_000;
  streams: Stream[] = [];
  asked = 0;
  /** Seconds before now of which the server has samples; none if it keeps nothing. */
  past: number[] | null = null;
  recalled = 0;
  /** Answers wait for it. */
  held: Promise<void> = Promise.resolve();
  readonly document = Object.assign(new EventTarget(), { hidden: false });

  constructor() {
    Object.assign(globalThis, {
      document: this.document,
      sessionStorage: { getItem: () => this.token, setItem: (_: string, token: string) => (this.token = token) },
      fetch: (path: string, init: RequestInit) => this.answer(path, init),
    });
  }

  hide(hidden: boolean): void {
    this.document.hidden = hidden;
    this.document.dispatchEvent(new Event("visibilitychange"));
  }

  get open(): Stream[] {
    return this.streams.filter((one) => !one.aborted);
  }

  private sample(ms: number) {
    const process = { pid: 1, version: "", survives: false, generation: 1 };
    const none = { process, reactors: [], media: [], namespaces: [], tenants: [], controllers: [] };
    return { time_ns: (ms - this.started) * 1e6, unix_time_ms: ms, ...none };
  }

  private async answer(path: string, init: RequestInit): Promise<Response> {
    const sent = (init.headers as Record<string, string>)["Authorization"];
    const refused = this.wanted !== null && sent !== `Bearer ${this.wanted}`;
    if (path === "/v1/stats") {
      this.asked += 1;
      await this.held;
      if (refused) return Response.json({ status: 401, title: "no token", detail: "" }, { status: 401 });
      return Response.json(this.sample(Date.now()));
    }
    if (path === "/v1/stats/history") {
      this.recalled += 1;
      if (this.past === null) return Response.json({ status: 404, title: "not found", detail: "" }, { status: 404 });
      const now = Date.now();
      return Response.json(this.past.map((seconds) => this.sample(now - seconds * 1000)));
    }
    const since = Number(/^\/v1\/events\?since=(\d+)$/.exec(path)?.[1]);
    const body = new TransformStream<Uint8Array, Uint8Array>();
    const writer = body.writable.getWriter();
    const stream: Stream = {
      since,
      say: (text) => void writer.write(new TextEncoder().encode(text)).catch(() => {}),
      end: () => void writer.close().catch(() => {}),
      aborted: false,
    };
    this.streams.push(stream);
    init.signal?.addEventListener("abort", () => {
      stream.aborted = true;
      void writer.abort().catch(() => {});
    });
    return new Response(body.readable);
  }
}

const event = (id: number) => `id: ${id}\nevent: changed\ndata: {"id":${id},"time_ns":1,"event":"changed","kind":"media","name":"m"}\n\n`;

async function until(what: string, check: () => boolean): Promise<void> {
  const end = Date.now() + 20_000;
  while (!check()) {
    assert.ok(Date.now() < end, what);
    await sleep(10);
  }
}

let around: Around;
let store: Store;

async function started(): Promise<void> {
  around = new Around();
  store = new Store();
  store.start();
  await until("it hears", () => around.streams.length === 1);
}

afterEach(() => around.hide(true));

test("what the server counted before the page was open is there, once", async () => {
  around = new Around();
  // the last one was taken after the page had asked for numbers
  around.past = [20, 15, 10, 5, -5];
  store = new Store();
  store.start();
  await until("it has two answers", () => store.history.timeline.length === 4 + 2);
  const seconds = store.history.timeline.seconds();
  assert.deepEqual(
    seconds,
    [...seconds].sort((a, b) => a - b),
  );
  assert.ok((seconds[4] ?? 0) - (seconds[0] ?? 0) > 19);
  assert.equal(around.recalled, 1);
});

test("a server that keeps no past is shown from now on", async () => {
  await started();
  await until("it has two answers", () => store.history.timeline.length === 2);
  assert.equal(around.recalled, 1);
});

test("who does not look hears of no events, and then of all since", async () => {
  await started();
  around.streams[0]?.say(event(1) + event(2));
  await until("events come", () => store.happenings.since === 2);
  around.hide(true);
  assert.equal(around.open.length, 0);
  const asked = around.asked;
  await sleep(1300);
  assert.equal(around.asked, asked);
  around.hide(false);
  await until("it hears again", () => around.open.length === 1);
  assert.equal(around.open[0]?.since, 2);
  store.pause(true);
  assert.equal(around.open.length, 0);
  store.pause(false);
  await until("it hears again", () => around.open.length === 1);
  assert.equal(around.open[0]?.since, 2);
  assert.equal(store.happenings.kept.length, 2);
});

test("an answer that comes when nobody looks any more begins nothing", async () => {
  await started();
  let release = () => {};
  around.held = new Promise((resolve) => {
    release = resolve;
  });
  const asked = around.asked;
  await until("it asks", () => around.asked > asked);
  around.hide(true);
  release();
  await sleep(1300);
  assert.equal(around.open.length, 0);
  assert.equal(around.asked, asked + 1);
});

test("where events are lost it goes on behind them", async () => {
  await started();
  around.streams[0]?.say(event(1));
  around.streams[0]?.say('event: lost\ndata: {"lost":40}\n\n');
  around.streams[0]?.end();
  await until("it asks again", () => around.streams.length === 2);
  assert.equal(around.streams[1]?.since, 41);
  assert.equal(store.happenings.lost, 40);
  around.streams[1]?.say(event(42));
  await until("they come", () => store.happenings.since === 42);
});

test("a server that was started anew while nobody looked is another one", async () => {
  await started();
  await until("there is a history", () => store.history.timeline.length > 0);
  around.streams[0]?.say(event(700));
  await until("events come", () => store.happenings.since === 700);
  around.hide(true);
  const history = store.history;
  // the page sees it only when it has run for longer than the one before had
  await sleep(50);
  const began = Date.now();
  around.started = began;
  const real = Date.now;
  Date.now = () => real() + 3_600_000;
  try {
    around.hide(false);
    await until("it is seen", () => store.server === 1);
  } finally {
    Date.now = real;
  }
  assert.notEqual(store.history, history);
  assert.equal(store.history.timeline.length, 1);
  assert.deepEqual(store.happenings.kept, []);
  assert.equal(around.open.length, 1);
  assert.equal(around.open[0]?.since, 0);
  assert.ok(Math.abs((store.startedAnew ?? 0) - began) < 10);
});

test("another token takes the place of one that is asked with", async () => {
  around = new Around();
  around.wanted = "right";
  around.token = "wrong";
  let release = () => {};
  around.held = new Promise((resolve) => {
    release = resolve;
  });
  store = new Store();
  store.start();
  await until("it asks", () => around.asked === 1);
  store.paused = true;
  store.unlock("right");
  assert.equal(store.paused, false);
  await until("it asks with the other", () => around.asked === 2);
  // the answer to the first question comes now, too, and says nothing of the second
  release();
  await until("it is live", () => store.connection.is === "live");
  await sleep(100);
  assert.equal(store.connection.is, "live");
  around.held = Promise.resolve();
  around.wanted = "another";
  await until("it is locked", () => store.connection.is === "locked");
  assert.equal(around.open.length, 0);
  assert.deepEqual(store.connection, { is: "locked", wrong: false });
  store.unlock("again wrong");
  await until("that is said", () => store.connection.is === "locked" && store.connection.wrong);
  // it is still so when somebody has looked elsewhere
  around.hide(true);
  around.hide(false);
  await sleep(200);
  assert.deepEqual(store.connection, { is: "locked", wrong: true });
});
