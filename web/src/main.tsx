import "uplot/dist/uPlot.min.css";
import "./theme.css";
import "./style.css";

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { takeToken } from "./api.ts";
import { clock } from "./format.ts";
import { ControllerPage } from "./pages/controller.tsx";
import { Events, Hosts, Namespaces, Tenants } from "./pages/lists.tsx";
import { Media, MediumPage } from "./pages/media.tsx";
import { Overview } from "./pages/overview.tsx";
import { type Motion, motion, setMotion, setTheme, type Theme, theme, watch } from "./settings.ts";
import { store, useStore } from "./store.ts";

const PAGES = [
  ["Overview", "#/"],
  ["Media", "#/media"],
  ["Namespaces", "#/namespaces"],
  ["Tenants", "#/tenants"],
  ["Hosts", "#/hosts"],
  ["Events", "#/events"],
] as const;

function Page({ path }: { path: string[] }) {
  const [kind, name] = path;
  if (kind === "controllers" && name !== undefined) return <ControllerPage key={name} name={name} />;
  if (kind === "media" && name !== undefined) return <MediumPage key={name} name={name} />;
  if (kind === "media") return <Media />;
  if (kind === "namespaces") return <Namespaces />;
  if (kind === "tenants") return <Tenants />;
  if (kind === "hosts") return <Hosts />;
  if (kind === "events") return <Events />;
  if (kind === undefined) return <Overview />;
  return (
    <>
      <h2>Nothing here</h2>
      <p>
        There is no such page. <a href="#/">Overview</a>
      </p>
    </>
  );
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function path(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
}

function App() {
  const { connection, stats } = useStore();
  const [at, setAt] = useState(path);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    const turn = () => {
      if (takeToken()) store.reconnect();
      setAt(path());
      // who uses the keyboard begins at the new page
      main.current?.focus();
      scrollTo(0, 0);
    };
    addEventListener("hashchange", turn);
    return () => removeEventListener("hashchange", turn);
  }, []);
  useEffect(() => {
    document.title = `${at.length === 0 ? "Overview" : at.join(" ")} – nvmirage`;
  }, [at.join("/")]);
  const here = at[0] === "controllers" || at.length === 0 ? "#/" : `#/${at[0] ?? ""}`;
  const skip = (event: Event) => {
    event.preventDefault();
    main.current?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        To the content
      </a>
      <header>
        <h1>
          <a href="#/">nvmirage</a>
        </h1>
        <Status />
        <Settings />
      </header>
      <nav aria-label="Pages">
        <ul>
          {PAGES.map(([label, href]) => (
            <li key={href}>
              <a href={href} aria-current={here === href ? "page" : undefined}>
                {label}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        {connection.is === "locked" ? <Locked wrong={connection.wrong} /> : stats === null && connection.is !== "live" ? <Waiting /> : <Page path={at} />}
      </main>
    </>
  );
}

function Waiting() {
  const { connection } = useStore();
  return <p>{connection.is === "connecting" ? "Connecting…" : "Waiting for the server…"}</p>;
}

function Status() {
  const { connection, paused, startedAnew, stats } = useStore();
  const live = startedAnew === null ? "Live" : `Live; the server was restarted at ${clock(startedAnew)}`;
  const [text, kind] =
    connection.is === "lost"
      ? [`The server has not answered since ${clock(connection.since)} (${connection.why}). Retrying every second.`, "bad"]
      : connection.is === "refused"
        ? [`The server refuses: ${connection.why}`, "bad"]
        : connection.is === "locked"
          ? ["Token required.", "bad"]
          : connection.is === "connecting"
            ? ["Connecting…", "wait"]
            : paused
              ? [`Paused at ${clock(stats?.unix_time_ms ?? 0)}.`, "wait"]
              : [live, "good"];
  return (
    <>
      <p class={`status ${kind}`} data-connection={connection.is}>
        <span class="dot" aria-hidden="true" /> {text}
      </p>
      {/* only what changes is said, and not the clock */}
      <p class="hidden" role="status" aria-live={kind === "bad" ? "assertive" : "polite"}>
        {connection.is === "live" && !paused ? `The numbers are live.${startedAnew === null ? "" : ` The server was restarted at ${clock(startedAnew)}.`}` : text}
      </p>
    </>
  );
}

function Settings() {
  const { paused } = useStore();
  const [look, setLook] = useState<Theme>(theme);
  const [move, setMove] = useState<Motion>(motion);
  return (
    <div class="settings">
      <button type="button" aria-pressed={paused} onClick={() => store.pause(!paused)}>
        {paused ? "Go on" : "Pause"}
      </button>
      <label>
        Theme
        <select
          value={look}
          onChange={(event) => {
            const to = event.currentTarget.value as Theme;
            setLook(to);
            setTheme(to);
          }}
        >
          <option value="system">as the system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <label>
        Motion
        <select
          value={move}
          onChange={(event) => {
            const to = event.currentTarget.value as Motion;
            setMove(to);
            setMotion(to);
          }}
        >
          <option value="system">as the system</option>
          <option value="reduced">reduced</option>
        </select>
      </label>
    </div>
  );
}

function Locked({ wrong }: { wrong: boolean }) {
  const [token, setToken] = useState("");
  return (
    <section class="card locked" aria-label="Token">
      <h2>Token</h2>
      <p>
        Over TCP the server wants the token of the file that <code>token_file</code> of its configuration names. It is kept until this tab is closed, and sent
        nowhere else. <code>nvmirage dashboard</code> prints an address that needs none.
      </p>
      {wrong && (
        <div class="alert" role="alert">
          The server refuses this token.
        </div>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          store.unlock(token);
        }}
      >
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        <button type="submit" class="main">
          Open
        </button>
      </form>
    </section>
  );
}

takeToken();
watch();
store.start();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
