// The dashboard in a real browser, against a real server under load.
//
// NVMIRAGE_BIN is the program, CHROMIUM the browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import { type Browser, type BrowserContext, chromium, type ConsoleMessage, type Page, type Request } from "playwright-core";

import { Daemon } from "./daemon.ts";

const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** How long anything may take on a machine that is busy. */
const BOUND = 60_000;
/** Controllers beside those under load. */
const MANY = 200;

const daemon = new Daemon();
let browser: Browser;

before(async () => {
  await daemon.start();
  daemon.load();
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
});

after(async () => {
  await browser?.close();
  await daemon.stop();
});

/** A tab, and what it has said and asked. */
class Tab {
  readonly said: string[] = [];
  readonly foreign: string[] = [];
  /** How many requests have no whole answer yet. */
  asking = 0;

  private constructor(
    readonly context: BrowserContext,
    readonly page: Page,
    readonly origin: string,
  ) {
    page.setDefaultTimeout(BOUND);
    page.on("console", (message: ConsoleMessage) => {
      if (["error", "warning"].includes(message.type())) this.said.push(`${message.type()}: ${message.text()} (${message.location().url})`);
    });
    page.on("pageerror", (error) => this.said.push(String(error)));
    page.on("request", (request) => {
      if (new URL(request.url()).origin !== origin) this.foreign.push(request.url());
      this.asking += 1;
    });
    const ended = () => {
      this.asking -= 1;
    };
    page.on("requestfinished", ended);
    page.on("requestfailed", ended);
  }

  static async open(url: string, options: Parameters<Browser["newContext"]>[0] = {}): Promise<Tab> {
    const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: "light", ...options });
    const page = await context.newPage();
    const tab = new Tab(context, page, new URL(url).origin);
    await page.goto(url);
    return tab;
  }

  /** Goes to a page of the dashboard. */
  async at(hash: string): Promise<void> {
    await this.page.evaluate((to) => {
      location.hash = to;
    }, hash);
    await this.page.locator("h2").first().waitFor();
  }

  async live(): Promise<void> {
    await this.page.locator('[data-connection="live"]').waitFor();
  }

  /** The number behind a row of a table of values. */
  async value(chart: string, row: string): Promise<number> {
    const cell = this.page.locator(`section[aria-label="${chart}"] table.values tr`, { hasText: row }).locator("td").first();
    return Number.parseFloat((await cell.getAttribute("data-value")) || "NaN");
  }

  /** Closes it; it has said nothing but what is expected, and asked nobody else. */
  async close(expected: RegExp[] = []): Promise<void> {
    await this.context.close();
    const unexpected = this.said.filter((text) => !expected.some((one) => one.test(text)));
    assert.deepEqual(unexpected, [], "the console has errors or warnings");
    assert.deepEqual(this.foreign, [], "something outside was asked");
  }
}

const opened = (options?: Parameters<typeof Tab.open>[1]) => Tab.open(`${daemon.origin}/#token=${daemon.token}`, options);

/** Waits until it is so. */
async function until(what: string, check: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + BOUND;
  while (!(await check())) {
    assert.ok(Date.now() < end, `not within ${BOUND / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** What axe finds, with all of its rules or those of one tag. */
async function violations(page: Page, tag?: string): Promise<string[]> {
  // the tab's policy lets no page load it; the browser's own way of running something in a page does
  await page.evaluate(AXE);
  return await page.evaluate(async (tag) => {
    const { axe } = globalThis as unknown as {
      axe: { run: (options: object) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }> };
    };
    const { violations } = await axe.run(tag === undefined ? {} : { runOnly: { type: "tag", values: [tag] } });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary ?? ""}`));
  }, tag);
}

test("over TCP it asks for the token, and says when it is wrong", async () => {
  const tab = await Tab.open(daemon.origin);
  const { page } = tab;
  await page.getByLabel("Token", { exact: true }).last().fill("f".repeat(64));
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("alert").getByText("refuses this token").waitFor();
  await page.locator("#token").fill(daemon.token);
  await page.getByRole("button", { name: "Open" }).click();
  await tab.live();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.ok(!page.url().includes(daemon.token));
  await tab.close([/401 \(Unauthorized\)/]);
});

test("the token leaves the address at once, and the page may ask nobody else", async () => {
  const tab = await opened();
  await tab.live();
  assert.equal(await tab.page.evaluate(() => location.href), `${daemon.origin}/`);
  assert.equal(await tab.page.evaluate(() => localStorage.getItem("nvmirage-token")), null);
  const response = await fetch(`${daemon.origin}/`);
  assert.match(response.headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self'; style-src 'self'/);
  assert.equal(response.headers.get("cache-control"), "no-store");
  // browsers keep its files for a year, so that their names are of their contents
  const files = [...(await response.text()).matchAll(/(?:src|href)="([^"]+)"/g)].map((found) => found[1] ?? "");
  assert.deepEqual(files.map((file) => file.split(".").at(-1)).sort(), ["css", "js", "svg"]);
  for (const file of files) {
    assert.match(file, /^\/assets\/[a-z]+-[A-Za-z0-9_-]{8}\.(?:css|js|svg)$/);
    const asset = await fetch(daemon.origin + file);
    assert.equal(asset.status, 200);
    assert.equal(asset.headers.get("cache-control"), "public, max-age=31536000, immutable");
  }
  assert.equal((await fetch(`${daemon.origin}/v1/stats`)).status, 401);
  await tab.close();
});

test("an address with another token that is pasted into the open page is used", async () => {
  const tab = await opened();
  await tab.live();
  const { page } = tab;
  await tab.at("#/events");
  await page.getByRole("button", { name: "Pause" }).click();
  const paste = (token: string) => page.goto(`${daemon.origin}/#token=${token}`);
  // no decoding of this, and nothing that a header can carry
  for (const wrong of ["f".repeat(64), "%", "%e6%97%a5"]) {
    await paste(wrong);
    await page.getByRole("alert").getByText("refuses this token").waitFor();
    assert.equal(page.url(), `${daemon.origin}/`);
  }
  await paste(daemon.token);
  await tab.live();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(page.url(), `${daemon.origin}/`);
  await until("numbers come", async () => (await tab.value("Commands of all controllers", "reads")) > 0);
  await tab.close([/401 \(Unauthorized\)/]);
});

test("the overview's numbers and charts move with the load", async () => {
  const tab = await opened();
  await tab.live();
  await until("reads are counted", async () => (await tab.value("Commands of all controllers", "reads")) > 0);
  const seen = new Set<number>();
  await until("its value changes", async () => {
    seen.add(await tab.value("Commands of all controllers", "reads"));
    return seen.size >= 3;
  });
  const picture = () =>
    tab.page.locator('section[aria-label="Commands of all controllers"] canvas').evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL());
  const first = await picture();
  await until("its chart moves", async () => (await picture()) !== first);
  // what it shows is what the server counts
  const [a, b] = [(await (await daemon.ask("GET", "/v1/stats")).json()) as Counted, await later()];
  const reads = (stats: Counted) => stats.controllers.reduce((sum, one) => sum + one.commands.read, 0);
  const rate = (reads(b) - reads(a)) / ((b.time_ns - a.time_ns) / 1e9);
  const shown = await tab.value("Commands of all controllers", "reads");
  assert.ok(shown > rate / 5 && shown < rate * 5, `${shown} shown, ${rate} counted`);
  await tab.close();
});

/** How often what is read out of a section, and what is shown below its cursor, changes in four seconds. */
async function quiet(page: Page, section: string): Promise<{ said: number; shown: number }> {
  return await page.evaluate(async (section) => {
    const watch = (element: Element | null) => {
      const count = { n: 0 };
      if (element !== null) new MutationObserver((all) => (count.n += all.length)).observe(element, { childList: true, characterData: true, subtree: true });
      return count;
    };
    const inside = document.querySelector(section);
    const [said, shown] = [watch(inside?.querySelector("[role=status]") ?? null), watch(inside?.querySelector(".readout") ?? null)];
    await new Promise((resolve) => setTimeout(resolve, 4000));
    return { said: said.n, shown: shown.n };
  }, section);
}

interface Counted {
  time_ns: number;
  controllers: { commands: { read: number } }[];
}

async function later(): Promise<Counted> {
  await new Promise((resolve) => setTimeout(resolve, 2000));
  return (await (await daemon.ask("GET", "/v1/stats")).json()) as Counted;
}

test("a controller's page has its latencies, stages, depth and queues", async () => {
  const tab = await opened();
  await tab.live();
  await tab.at("#/controllers/db-primary");
  const { page } = tab;
  await until("p50 is known", async () => (await tab.value("Latency", "p50")) > 0);
  await until("the model's stage is known", async () => (await tab.value("Where the time goes", "model")) > 0);
  await until("commands are in flight", async () => (await tab.value("Queue depth", "on average")) > 0);
  const map = page.getByRole("application", { name: /heat map/i });
  await map.focus();
  // the loudest cell of the newest column is read out, with its numbers
  await until("the heat map is read out", async () => {
    await page.keyboard.press("Escape");
    await page.keyboard.press("ArrowLeft");
    const text = await page.locator("section[aria-label='Latency over time'] .readout").textContent();
    return /: [1-9]\d* of [1-9]\d* watched commands/.test(text ?? "");
  });
  // a reader of screens hears of a cell when the cursor comes there, and not each second in which its numbers change
  const changes = await quiet(page, "section[aria-label='Latency over time']");
  assert.deepEqual({ said: changes.said, shown: changes.shown > 0 }, { said: 0, shown: true });
  const said = page.locator("section[aria-label='Latency over time']").getByRole("status");
  const before = await said.textContent();
  await page.keyboard.press("ArrowUp");
  await until("the next cell is read out", async () => (await said.textContent()) !== before);
  await page.getByRole("button", { name: "Open the inspector" }).click();
  const rings = page.getByRole("table", { name: "Rings" });
  await rings.waitFor();
  assert.ok((await rings.getByRole("row").filter({ hasText: "SQ 1" }).count()) >= 1);
  await until("commands are seen in flight", async () => {
    const rows = await page.getByRole("table", { name: "Commands in flight" }).getByRole("row").allTextContents();
    return rows.some((row) => /^(Read|Write)/.test(row));
  });
  await tab.close();
});

test("a knob raises the latency by what it says, and what is refused is said", async () => {
  const tab = await opened();
  await tab.live();
  await tab.at("#/media/optane");
  const { page } = tab;
  const knob = page.getByLabel("read_latency live");
  await until("p50 is known", async () => (await tab.value("Latency of db-replica", "p50")) > 0);
  await knob.fill("nonsense");
  await page.getByRole("button", { name: "Apply read_latency" }).click();
  const alert = page.getByRole("alert").filter({ hasText: "read_latency" });
  await alert.waitFor();
  assert.match((await alert.textContent()) ?? "", /8us/);
  // 400 ms more are far more than anything else here, also than what a busy machine adds: where it gives the reactor and the host
  // no processor for some milliseconds each, half of the commands wait for both
  const timing = (await (await daemon.ask("GET", "/v1/media/optane/timing")).json()) as { parameters: { name: string; raw: number }[] };
  const was = timing.parameters.find((one) => one.name === "read_latency")?.raw ?? 0;
  assert.ok(was > 0);
  // a knob's before are its last ten seconds
  await page.waitForTimeout(12_000);
  const before = await tab.value("Latency of db-replica", "p50");
  await knob.fill(`${was + 400_000_000}ns`);
  await page.getByRole("button", { name: "Apply read_latency" }).click();
  const row = page.locator('tr[data-row="read p50"]');
  const compared = async (cell: number) => Number(await row.locator("td").nth(cell).getAttribute("data-value"));
  await until("the page shows the step", async () => {
    if ((await row.count()) === 0) return false;
    const step = (await compared(1)) - (await compared(0));
    // a machine that was busy before and is not any more moves it by up to a quarter, and a command whose part of the drive is
    // taken waits for up to two others: the median is 400 ms in one run, and 805 in another
    return step > 300_000_000 && step < 1_300_000_000;
  });
  await until("its chart steps, too", async () => (await tab.value("Latency of db-replica", "p50")) - before > 300_000_000);
  // the chart says in words what its mark is
  const plot = page.locator("section[aria-label='Latency of db-replica'] .plot");
  assert.match((await plot.getAttribute("aria-label")) ?? "", / At \d\d:\d\d:\d\d: read_latency \d+ns\./);
  await page.getByRole("button", { name: "Undo" }).click();
  await until("it is undone", async () => (await tab.value("Latency of db-replica", "p50")) - before < 200_000_000);
  await tab.close([/422 \(Unprocessable/]);
});

test("maps show what flash and zones have become, by keyboard, too", async () => {
  const tab = await opened();
  await tab.live();
  const { page } = tab;
  await tab.at("#/media/flash");
  const map = page.getByRole("application", { name: /Partition 0/ });
  await map.waitFor();
  // the attribute of SVG is in lower case, and Chromium alone takes another
  for (const one of await page.getByRole("application").all()) assert.equal(await one.getAttribute("tabindex"), "0");
  await map.focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("status").filter({ hasText: /line 0: / }).waitFor();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("status").filter({ hasText: /line 1: / }).waitFor();
  await page.getByLabel("Wear").check();
  await page.getByRole("application", { name: /by wear/ }).first().waitFor();
  await tab.at("#/media/zoned");
  const zones = page.getByRole("application", { name: /Zones by state/ });
  assert.equal(await zones.getAttribute("tabindex"), "0");
  await zones.focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("status").filter({ hasText: /zone 0: empty/ }).waitFor();
  assert.equal((await quiet(page, "section[aria-label='Zone map']")).said, 0);
  await tab.close();
});

test("where a table is cut at the right, it says so until one has scrolled there", async () => {
  const tab = await opened({ viewport: { width: 400, height: 900 } });
  await tab.live();
  const { page } = tab;
  const region = page.getByRole("region", { name: "Controllers: scrolls" });
  const hint = page.locator(".scroll[aria-label='Controllers: scrolls'] + .cut");
  await region.waitFor();
  await hint.waitFor();
  await region.evaluate((box) => {
    box.scrollLeft = box.scrollWidth;
  });
  await hint.waitFor({ state: "detached" });
  await page.setViewportSize({ width: 2400, height: 900 });
  await region.evaluate((box) => {
    box.scrollLeft = 0;
  });
  await page.waitForTimeout(300);
  assert.equal(await hint.count(), 0);
  await tab.close();
});

test("two hundred controllers more stay few rows, searched, sorted and scrolled", async () => {
  await daemon.makeMany(MANY);
  const tab = await opened();
  await tab.live();
  const { page } = tab;
  const table = page.getByRole("table", { name: "Controllers" });
  const all = String(MANY + 4);
  await page.getByRole("status").getByText(`${all} of ${all}`).waitFor();
  const rows = () => table.locator("tbody tr").count();
  assert.ok((await rows()) < 40, `${await rows()} rows`);
  assert.ok((await page.evaluate(() => document.querySelectorAll("*").length)) < 2500);
  assert.equal(await table.getAttribute("aria-rowcount"), String(MANY + 5));
  await page.getByRole("region", { name: "Controllers: scrolls" }).evaluate((region) => {
    region.scrollTop = region.scrollHeight;
  });
  await table.getByText(`vm-${MANY}`, { exact: true }).first().waitFor();
  assert.ok((await rows()) < 40);
  await page.getByLabel(/^Search/).fill("vm-017");
  await page.getByRole("status").getByText(`1 of ${all}`).waitFor();
  await table.getByRole("link", { name: "vm-017" }).waitFor();
  await page.getByLabel(/^Search/).fill("attached");
  await page.getByRole("status").getByText(`3 of ${all}`).waitFor();
  await page.getByLabel(/^Search/).fill("");
  await table.getByRole("button", { name: "IOPS" }).click();
  assert.equal(await table.locator("th", { hasText: "IOPS" }).getAttribute("aria-sort"), "descending");
  await table.locator("tbody tr").first().getByText(/^nvmirage \(\d+\)$/).waitFor();
  // it still asks every second, and shows what comes
  const seen = new Set<number>();
  await until("numbers still move", async () => {
    seen.add(await tab.value("Commands of all controllers", "reads"));
    return seen.size >= 3;
  });
  await tab.close();
});

const WALKED = ["#/", "#/controllers/db-primary", "#/media", "#/media/optane", "#/media/flash", "#/media/zoned", "#/namespaces", "#/tenants", "#/hosts", "#/events", "#/nothing"];

for (const colorScheme of ["light", "dark"] as const) {
  test(`every page is accessible, ${colorScheme}`, async () => {
    const tab = await Tab.open(`${daemon.origin}/#token=${daemon.token}`, { colorScheme, reducedMotion: colorScheme === "dark" ? "reduce" : "no-preference" });
    await tab.live();
    const { page } = tab;
    assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), colorScheme);
    assert.equal(await page.evaluate(() => document.documentElement.dataset["motion"]), colorScheme === "dark" ? "reduced" : "full");
    for (const hash of WALKED) {
      await tab.at(hash);
      await page.waitForTimeout(1500);
      if (hash.includes("controllers")) {
        await page.getByRole("button", { name: "Open the inspector" }).click();
        await page.waitForTimeout(1000);
      }
      // a theme is colours alone
      assert.deepEqual(await violations(page, colorScheme === "dark" ? "cat.color" : undefined), [], hash);
    }
    await tab.close();
  });
}

test("everything is reached by keyboard, and the switches for theme and motion hold", async () => {
  const tab = await opened();
  await tab.live();
  const { page } = tab;
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() || document.activeElement?.id || document.activeElement?.tagName || "");
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "To the content");
  // from the skip link through all that the page has, in the order of the document
  const reached: string[] = [];
  for (let turn = 0; turn < 60; turn += 1) {
    await page.keyboard.press("Tab");
    reached.push(await focused());
    const outline = await page.evaluate(() => {
      const active = document.activeElement;
      return active === null || active === document.body ? "none" : getComputedStyle(active).outlineStyle;
    });
    if (reached.at(-1)?.startsWith("nvmirage") && reached.length > 5) break;
    if (!["BODY", ""].includes(reached.at(-1) ?? "") && reached.length < 12) assert.notEqual(outline, "none", `${reached.at(-1)} shows no focus`);
  }
  for (const name of ["Pause", "Overview", "Media", "Tenants", "Events", "search", "IOPS", "db-primary"]) {
    assert.ok(reached.includes(name), `${name} is not reached: ${reached.join(", ")}`);
  }
  await page.getByRole("link", { name: "Tenants" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Tenants", level: 2 }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  await page.getByLabel("Theme").selectOption("dark");
  await page.getByLabel("Motion").selectOption("reduced");
  await page.reload();
  await tab.live();
  assert.deepEqual(await page.evaluate(() => ({ ...document.documentElement.dataset })), { theme: "dark", motion: "reduced" });
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/^Paused at/).first().waitFor();
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("Live", { exact: false }).first().waitFor();
  await tab.close();
});

test("nvmirage dashboard passes requests on, to those with its token alone", async () => {
  const url = await daemon.proxy();
  const origin = new URL(url).origin;
  const token = new URL(url).hash.replace("#token=", "");
  assert.notEqual(token, daemon.token);
  assert.equal((await fetch(`${origin}/v1`)).status, 401);
  assert.equal((await fetch(`${origin}/v1`, { headers: { Authorization: `Bearer ${daemon.token}` } })).status, 401);
  const tab = await Tab.open(url);
  await tab.live();
  await tab.page.getByRole("link", { name: "Events" }).click();
  // what happens comes through while it happens
  await daemon.ask("PUT", "/v1/tenants/bronze", { weight: 50 });
  await tab.page.getByRole("row", { name: /created.*bronze/ }).waitFor();
  await tab.close();
});

/** Hides or shows a tab, as far as its page can tell. */
async function hide(page: Page, hidden: boolean): Promise<void> {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
}

test("who does not look holds no place for events, and is told what is lost by then", async () => {
  const tab = await opened();
  const { page } = tab;
  const asked: string[] = [];
  let open = 0;
  const isEvents = (url: string) => new URL(url).pathname === "/v1/events";
  page.on("request", (request) => {
    if (!isEvents(request.url())) return;
    asked.push(new URL(request.url()).search);
    open += 1;
  });
  const ended = (request: Request) => {
    if (isEvents(request.url())) open -= 1;
  };
  page.on("requestfinished", ended);
  page.on("requestfailed", ended);
  await page.reload();
  await tab.live();
  await tab.at("#/events");
  const change = async (weight: number) => {
    const response = await daemon.ask("PATCH", "/v1/tenants/silver", { changes: { weight: String(weight) } });
    assert.ok(response.ok, await response.text());
  };
  await change(101);
  const newest = page.getByRole("table", { name: "Events" }).locator("tbody tr").first();
  await newest.getByText("silver").waitFor();
  const number = async () => Number(await newest.locator("td").first().textContent());
  const last = await number();
  assert.equal(open, 1);
  await hide(page, true);
  await until("it is ended", async () => open === 0);
  await hide(page, false);
  await until("it is taken up", async () => open === 1);
  assert.equal(asked.at(-1), `?since=${last}`);
  await page.getByRole("button", { name: "Pause" }).click();
  await until("it is ended", async () => open === 0);
  // five more than the server keeps
  await daemon.haveTenants(515);
  await daemon.haveTenants(1);
  await page.getByRole("button", { name: "Go on" }).click();
  const lost = page.locator("[data-lost]");
  await lost.getByText(/^5 events were lost/).waitFor();
  await until("what came behind them is there", async () => (await number()) === last + 1029);
  assert.equal(asked.at(-1), `?since=${last + 5}`);
  await change(100);
  await until("and what comes then", async () => (await number()) === last + 1030);
  assert.equal(await lost.getAttribute("data-lost"), "5");
  await tab.close();
});

test("a server that is gone is said, and one that is back is shown", async () => {
  const tab = await opened();
  await tab.live();
  const { page } = tab;
  // another tab is not looked at meanwhile
  const hidden = await opened();
  await hidden.live();
  await hidden.at("#/events");
  await daemon.ask("PUT", "/v1/tenants/gone", { weight: 50 });
  await hidden.page.getByRole("row", { name: /created.*gone/ }).waitFor();
  await hide(hidden.page, true);
  // what it asked before that is no request to a server that is gone
  await until("it asks no more", async () => hidden.asking === 0);
  await daemon.kill();
  await page.getByRole("status").getByText(/The server has not answered since/).waitFor();
  await daemon.start();
  daemon.load();
  await tab.live();
  await page.getByText(/Live; the server was restarted at/).first().waitFor();
  await hide(hidden.page, false);
  await hidden.page.getByText(/Live; the server was restarted at/).first().waitFor();
  assert.equal(await hidden.page.getByRole("row", { name: /created.*gone/ }).count(), 0);
  await daemon.ask("PUT", "/v1/tenants/fresh", { weight: 50 });
  await hidden.page.getByRole("row", { name: /created.*fresh/ }).waitFor();
  await hidden.close();
  await until("numbers come again", async () => (await tab.value("Commands of all controllers", "reads")) > 0);
  await tab.close([/ERR_CONNECTION_(REFUSED|RESET)/, /ERR_EMPTY_RESPONSE/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_SOCKET/]);
});
