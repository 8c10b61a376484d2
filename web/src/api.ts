// Requests to the server, with the token where it wants one.

import type { Happening, Inspector, Lost, MediumMap, ProblemDetails, Stats, Timing } from "./types.ts";

const KEPT_AS = "nvmirage-token";
/** How long the server may take to answer. */
const BOUND_MS = 10_000;

/** What the server refuses, in its words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail);
  }
}

/** The server did not answer. */
export class Unreachable extends Error {}

/** The token that an address has behind `#`, or none. */
export function tokenOf(hash: string): string | null {
  const text = /^#token=(.*)$/s.exec(hash)?.[1];
  if (text === undefined) return null;
  try {
    return decodeURIComponent(text).trim();
  } catch {
    // tokens may have a % of their own, and who writes one behind # may leave it as it is
    return text.trim();
  }
}

/**
 * Takes a token out of the address, so that it is not seen, kept or sent on; it stays for as long as the tab is open. Whether there
 * was one.
 */
export function takeToken(): boolean {
  const token = tokenOf(location.hash);
  if (token === null) return false;
  history.replaceState(null, "", location.pathname);
  if (token === "") return false;
  setToken(token);
  return true;
}

export function setToken(token: string): void {
  sessionStorage.setItem(KEPT_AS, token.trim());
}

export function hasToken(): boolean {
  return sessionStorage.getItem(KEPT_AS) !== null;
}

/** What goes out with a token. What no header can carry is no token: the server is asked without it, and says that it wants one. */
export function authorization(token: string | null): Record<string, string> {
  return token !== null && /^[\x21-\x7e]+$/.test(token) ? { Authorization: `Bearer ${token}` } : {};
}

async function refused(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const problem = JSON.parse(text) as ProblemDetails;
    return new Problem(response.status, problem.title, problem.detail);
  } catch {
    return new Problem(response.status, "refused", text.slice(0, 500) || `status ${response.status}`);
  }
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      signal: AbortSignal.timeout(BOUND_MS),
      cache: "no-store",
      redirect: "error",
      ...init,
      headers: { ...authorization(sessionStorage.getItem(KEPT_AS)), ...(init.headers as Record<string, string> | undefined) },
    });
  } catch (error) {
    throw new Unreachable(error instanceof Error ? error.message : String(error));
  }
  if (!response.ok) {
    const problem = await refused(response);
    // the address that `nvmirage dashboard` listens on is there, and the server behind it is not
    if (response.status === 502) throw new Unreachable(problem.detail);
    throw problem;
  }
  return response;
}

async function get<T>(path: string): Promise<T> {
  const response = await ask(path);
  try {
    return (await response.json()) as T;
  } catch (error) {
    throw new Unreachable(error instanceof Error ? error.message : String(error));
  }
}

const name = encodeURIComponent;

export const stats = () => get<Stats>("/v1/stats");
/** What the server counted in the last ten minutes, every few seconds, the oldest first. */
export const past = () => get<Stats[]>("/v1/stats/history");
export const timing = (medium: string) => get<Timing>(`/v1/media/${name(medium)}/timing`);
export const map = (medium: string) => get<MediumMap>(`/v1/media/${name(medium)}/map?cells=2048&count=0`);
export const queues = (controller: string) => get<Inspector>(`/v1/controllers/${name(controller)}/queues?commands=64`);

/** Changes parameters of a medium's timing. */
export async function retune(medium: string, timing: Record<string, string>): Promise<void> {
  await ask(`/v1/media/${name(medium)}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ timing }),
  });
}

/** Characters of one event at most. */
const EVENT_LEN = 64 << 10;

/** The events in a stream's text, or how many are lost in their place, and what is left of it. */
export function eventsOf(text: string): [(Happening | Lost)[], string] {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const found: (Happening | Lost)[] = [];
  for (const block of blocks) {
    const field = (key: string) =>
      block
        .split("\n")
        .find((line) => line.startsWith(`${key}: `))
        ?.slice(key.length + 2);
    const data = field("data");
    if (data === undefined) continue;
    found.push(JSON.parse(data) as Happening | Lost);
  }
  return [found, rest];
}

/** Hears of events, those behind `since` first, until the server or the caller ends it. */
export async function events(since: number, each: (news: Happening | Lost) => void, signal: AbortSignal): Promise<void> {
  const response = await ask(`/v1/events?since=${since}`, { signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const [found, rest] = eventsOf(text + value);
    if (rest.length > EVENT_LEN) throw new Unreachable("an event is too long");
    text = rest;
    found.forEach(each);
  }
}
