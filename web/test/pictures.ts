// The pictures of the dashboard in the book: `node pictures.js DIR`. NVMIRAGE_BIN is the program, CHROMIUM the browser.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { type Browser, type Page, chromium } from "playwright-core";

import { Daemon } from "./daemon.ts";

const [, , folder = "."] = process.argv;
/** How long anything may take on a machine that is busy. */
const BOUND_MS = 60_000;
/** What the charts of a picture show: the load, and nothing before it. */
const HISTORY_MS = 100_000;
/** Rows of the inspector: four rings, and commands of a host that are in flight together. */
const BATCH = 16;
/** A page compares with its last ten seconds before a change of a parameter. */
const BEFORE_MS = 15_000;
/** From a change of a parameter to its picture. */
const AFTER_MS = 25_000;

/** A tab at a page of the dashboard. */
async function open(browser: Browser, daemon: Daemon, hash: string, colorScheme: "light" | "dark"): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(BOUND_MS);
  await page.goto(`${daemon.origin}/#token=${daemon.token}`);
  await page.locator('[data-connection="live"]').waitFor();
  await go(page, hash);
  return page;
}

async function go(page: Page, hash: string): Promise<void> {
  await page.evaluate((to) => {
    location.hash = to;
  }, hash);
  await page.locator("h2").first().waitFor();
}

/** The part of a page that a window shows, or a section alone. */
async function take(page: Page, name: string, section?: string): Promise<void> {
  const path = join(folder, `dashboard-${name}.png`);
  await page.evaluate(() => {
    (document.activeElement as HTMLElement | null)?.blur();
    scrollTo(0, 0);
  });
  await page.mouse.move(0, 0);
  if (section === undefined) await sleep(1500);
  if (section === undefined) await page.screenshot({ path });
  else await page.locator(`section[aria-label='${section}']`).screenshot({ path });
  console.log(path);
}

async function pictures(browser: Browser, daemon: Daemon): Promise<void> {
  const dark = await open(browser, daemon, "#/controllers/db-primary", "dark");
  const page = await open(browser, daemon, "#/", "light");
  await sleep(HISTORY_MS);
  await take(dark, "controller-dark");
  await dark.context().close();
  await take(page, "overview-light");
  await go(page, "#/tenants");
  await take(page, "tenants");
  await go(page, "#/media/flash");
  await sleep(3000);
  await take(page, "flash", "Flash map");
  await go(page, "#/controllers/build-ci");
  await page.getByRole("button", { name: "Open the inspector" }).click();
  // the host sends batches: a look between two of them finds none, so the page is paused at one that finds many
  await page.getByRole("button", { name: "Pause" }).evaluate(async (pause, { enough, bound }) => {
    const end = Date.now() + bound;
    const rows = () => document.querySelectorAll("section[aria-label='Queues'] tbody tr").length;
    while (rows() < enough) {
      if (Date.now() > end) throw new Error("the host's commands are never in flight together");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    (pause as HTMLElement).click();
  }, { enough: BATCH, bound: BOUND_MS });
  await take(page, "inspector", "Queues");
  await page.getByRole("button", { name: "Go on" }).click();

  await go(page, "#/media/optane");
  await sleep(BEFORE_MS);
  await page.getByLabel("read_latency live").fill("5ms");
  await page.getByRole("button", { name: "Apply read_latency" }).click();
  await sleep(AFTER_MS);
  await take(page, "knob");
}

mkdirSync(folder, { recursive: true });
const daemon = new Daemon();
try {
  await daemon.start();
  daemon.load();
  const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    await pictures(browser, daemon);
  } finally {
    await browser.close();
  }
} finally {
  await daemon.stop();
}
