// The parameters of a model as knobs, and what a change of them does to the latencies of those who use the medium.

import { useState } from "preact/hooks";

import * as api from "../api.ts";
import { Alert, Card, link, Sideways, useAsked } from "../parts/bits.tsx";
import { Chart } from "../parts/chart.tsx";
import { change, clock, time, whole } from "../format.ts";
import { count, difference, merged, percentile } from "../histogram.ts";
import { atStep, changed, groups, slides, STEPS } from "../knobs.ts";
import type { Mark } from "../marks.ts";
import { store, useStore } from "../store.ts";
import type { Bucket, Controller, Parameter, Stats } from "../types.ts";

/** Seconds before a change that it is compared with. */
const BEFORE_S = 10;

/** Latencies that were counted up to some time, by operation, of several controllers together. */
type Counted = Map<string, Bucket[]>;

function counted(stats: Stats | null, controllers: string[]): Counted {
  const mine = (stats?.controllers ?? []).filter((one) => controllers.includes(one.name));
  const of = (operation: string) => merged(mine.map((one: Controller) => one.latency.find((l) => l.operation === operation)?.buckets ?? []));
  return new Map(["read", "write", "other"].map((operation) => [operation, of(operation)]));
}

interface Change {
  ms: number;
  what: { name: string; from: string; to: string }[];
  before: Counted;
  /** Counts of the server after it made the change, and its time then. */
  at: Counted;
  atNs: number;
}

/** What was counted in the last seconds: kept while a page with knobs is open, so that a change has a before. */
class Recent {
  private kept: { ns: number; counted: Counted }[] = [];

  look(controllers: string[]): void {
    const ns = store.stats?.time_ns ?? 0;
    if (this.kept.at(-1)?.ns === ns) return;
    this.kept.push({ ns, counted: counted(store.stats, controllers) });
    if (this.kept.length > BEFORE_S + 1) this.kept.shift();
  }

  /** What was counted from the first to the last look. */
  window(): Counted {
    const [first, last] = [this.kept[0]?.counted, this.kept.at(-1)?.counted];
    const found: Counted = new Map();
    for (const [operation, buckets] of last ?? []) found.set(operation, difference(buckets, first?.get(operation) ?? []));
    return found;
  }
}

export function Knobs({ medium, controllers }: { medium: string; controllers: string[] }) {
  useStore();
  const [recent] = useState(() => new Recent());
  recent.look(controllers);
  const { value: timing, error, again } = useAsked(() => api.timing(medium), medium, 5000);
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [changes, setChanges] = useState<Change[]>([]);
  const [problem, setProblem] = useState<unknown>(null);
  const [sending, setSending] = useState(false);
  if (timing === null) return error === null ? <p>Looking at its timing…</p> : <Alert error={error} />;
  const write = (name: string, text: string) => setTexts(new Map(texts).set(name, text));
  const toSend = changed(timing.parameters, texts);
  const names = Object.keys(toSend);
  const send = async (values: Record<string, string>) => {
    setSending(true);
    setProblem(null);
    const before = recent.window();
    try {
      await api.retune(medium, values);
      // store.stats is up to a second old: it lacks commands that completed before the change
      const now = (await api.stats().catch(() => null)) ?? store.stats;
      const what = Object.entries(values).map(([name, to]) => ({ name, to, from: timing.parameters.find((one) => one.name === name)?.value ?? "" }));
      setChanges([...changes.slice(-7), { ms: now?.unix_time_ms ?? Date.now(), what, before, at: counted(now, controllers), atNs: now?.time_ns ?? 0 }]);
      setTexts(new Map());
      again();
    } catch (refused) {
      setProblem(refused);
    } finally {
      setSending(false);
    }
  };
  const live = groups(timing.parameters);
  const rest = timing.parameters.filter((one) => one.applies !== "live");
  const last = changes.at(-1);
  return (
    <>
      {last !== undefined && (
        <BeforeAfter change={last} controllers={controllers} undo={() => void send(Object.fromEntries(last.what.map((one) => [one.name, one.from])))} />
      )}
      <div class="cards">
        {controllers.slice(0, 2).map((name) => (
          <LatencyOf key={name} name={name} wide={controllers.length === 1} marks={changes.map(({ ms, what }) => ({ ms, label: what.map((one) => `${one.name} ${one.to}`).join(", ") }))} />
        ))}
      </div>
      <Card title="Timing" about={`As ${timing.preset}, a model of kind ${timing.kind}. A change counts for commands that arrive from then on; sliders go from a tenth to ten times.`} wide>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (names.length > 0) void send(toSend);
          }}
        >
          {[...live].map(([group, parameters], index) => (
            <details key={group} class="group" open={index === 0}>
              <summary>
                {group} <span class="about">{parameters.map(({ name }) => name).join(", ")}</span>
              </summary>
              <div class="knobs">
                {parameters.map((one) => (
                  <Knob key={one.name} parameter={one} text={texts.get(one.name)} write={(text) => write(one.name, text)} />
                ))}
              </div>
            </details>
          ))}
          <Alert error={problem} />
          <div class="row sticky">
            <button type="submit" class="main" disabled={names.length === 0 || sending}>
              {names.length === 0 ? "Apply" : `Apply ${names.join(", ")}`}
            </button>
            <button type="button" disabled={texts.size === 0} onClick={() => setTexts(new Map())}>
              Reset
            </button>
          </div>
        </form>
        <Fixed parameters={rest} />
      </Card>
    </>
  );
}

function Knob({ parameter, text, write }: { parameter: Parameter; text: string | undefined; write: (text: string) => void }) {
  const [step, setStep] = useState(0);
  const id = `knob-${parameter.name}`;
  const shown = text ?? parameter.value;
  const differs = text !== undefined && text !== parameter.value;
  return (
    <div class={differs ? "knob differs" : "knob"}>
      <label for={id}>
        {parameter.name} <span class="badge">live</span>
      </label>
      {parameter.unit === "flag" || parameter.unit === "word" ? (
        <select id={id} value={shown} aria-describedby={`${id}-about`} onChange={(event) => write(event.currentTarget.value)}>
          {(parameter.unit === "flag" ? ["false", "true"] : (parameter.words ?? [])).map((word) => (
            <option key={word} value={word}>
              {word}
            </option>
          ))}
        </select>
      ) : (
        <input id={id} type="text" value={shown} aria-describedby={`${id}-about`} spellcheck={false} autocomplete="off" onInput={(event) => write(event.currentTarget.value)} />
      )}
      {slides(parameter) && (
        <input
          type="range"
          min={-STEPS}
          max={STEPS}
          step={1}
          value={text === undefined ? 0 : step}
          aria-label={`${parameter.name}: a tenth to ten times of ${parameter.value}`}
          aria-valuetext={shown}
          onInput={(event) => {
            const to = event.currentTarget.valueAsNumber;
            setStep(to);
            write(atStep(parameter, to));
          }}
        />
      )}
      <p id={`${id}-about`} class="about">
        {parameter.description}; {parameter.range}
        {differs ? `; now ${parameter.value}` : ""}
      </p>
    </div>
  );
}

function Fixed({ parameters }: { parameters: Parameter[] }) {
  return (
    <details>
      <summary>Parameters that do not change while hosts use it ({parameters.length})</summary>
      <Sideways label="Parameters">
        <table>
          <thead>
            <tr>
              <th scope="col" class="text">
                Parameter
              </th>
              <th scope="col">value</th>
              <th scope="col" class="text">
                may change
              </th>
              <th scope="col" class="text">
                what it does
              </th>
            </tr>
          </thead>
          <tbody>
            {parameters.map((one) => (
              <tr key={one.name}>
                <th scope="row" class="text">
                  {one.name}
                </th>
                <td>{one.value}</td>
                <td class="text">
                  <span class="badge">{one.applies}</span> {one.applies === "reset" ? "when its controller is reset" : "when the medium is made"}
                </td>
                <td class="text">{one.description}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Sideways>
    </details>
  );
}

function LatencyOf({ name, wide, marks }: { name: string; wide: boolean; marks: Mark[] }) {
  const history = store.history.controllers.get(name);
  if (history === undefined) return null;
  return (
    <Chart
      title={`Latency of ${name}`}
      factors
      wide={wide}
      lines={[
        { label: "p50", series: history.numbers.p50, colour: 0 },
        { label: "p99", series: history.numbers.p99, colour: 1 },
      ]}
      shown={time}
      marks={marks}
    >
      <p class="about">
        <a href={link.controller(name)}>All of {name}</a>
      </p>
    </Chart>
  );
}

function BeforeAfter({ change: last, controllers, undo }: { change: Change; controllers: string[]; undo: () => void }) {
  const isSince = (store.stats?.time_ns ?? 0) > last.atNs;
  const now = counted(store.stats, controllers);
  const rows = [...now]
    .map(([operation, buckets]) => ({
      operation,
      before: last.before.get(operation) ?? [],
      after: isSince ? difference(buckets, last.at.get(operation) ?? []) : [],
    }))
    .filter(({ before, after }) => before.length > 0 || after.length > 0);
  return (
    <Card
      title="Before and after"
      about={`${clock(last.ms)}: ${last.what.map((one) => `${one.name} from ${one.from} to ${one.to}`).join(", ")}. Before are the ${BEFORE_S} s until then, after is all since.`}
      wide
    >
      {rows.length === 0 ? (
        <p>No command was watched before or since.</p>
      ) : (
        <Sideways label="Before and after">
          <table class="compare" aria-label="Before and after">
            <thead>
              <tr>
                <th scope="col" class="text">
                  Latency
                </th>
                <th scope="col">before</th>
                <th scope="col">after</th>
                <th scope="col">difference</th>
                <th scope="col">watched before, after</th>
              </tr>
            </thead>
            <tbody>
              {rows.flatMap(({ operation, before, after }) =>
                ([
                  ["p50", 0.5],
                  ["p99", 0.99],
                ] as const).map(([label, part]) => {
                  const [a, b] = [percentile(before, part), percentile(after, part)];
                  return (
                    <tr key={operation + label} data-row={`${operation} ${label}`}>
                      <th scope="row" class="text">
                        {operation} {label}
                      </th>
                      <td data-value={a ?? ""}>{time(a)}</td>
                      <td data-value={b ?? ""}>{time(b)}</td>
                      <td>{change(a, b, time)}</td>
                      <td>
                        {whole(count(before))}, {whole(count(after))}
                      </td>
                    </tr>
                  );
                }),
              )}
            </tbody>
          </table>
        </Sideways>
      )}
      <button type="button" onClick={undo}>
        Undo
      </button>
    </Card>
  );
}
