import { useState } from "preact/hooks";

import { Card, link, Parts, Tile } from "../parts/bits.tsx";
import { Chart } from "../parts/chart.tsx";
import { type Column, LongTable } from "../parts/table.tsx";
import { amount, bandwidth, percent, time } from "../format.ts";
import { MOST, type NumberName, REACTOR_STATES } from "../history.ts";
import { hostOf, without } from "./controller.tsx";
import { useStore } from "../store.ts";
import type { Controller, Process as ServerProcess } from "../types.ts";

export function Overview() {
  const store = useStore();
  const { stats, history } = store;
  if (stats === null) return <p>Waiting for the server's first answer…</p>;
  const attached = stats.controllers.filter((one) => one.attached).length;
  const { total } = history;
  let [depth, errors] = [0, 0];
  for (const { last } of history.controllers.values()) {
    depth += last?.numbers.depth ?? last?.numbers.in_flight ?? 0;
    errors += last?.numbers.errors ?? 0;
  }
  return (
    <>
      <h2>Overview</h2>
      <dl class="tiles">
        <Tile label="Commands/s" value={amount(total.read_iops + total.write_iops)} />
        <Tile label="Bandwidth" value={bandwidth(total.read_bandwidth + total.write_bandwidth)} />
        <Tile label="In flight" value={amount(Math.round(depth))} />
        <Tile label="Errors/s" value={amount(errors)} />
        {stats.process.survives && <Process process={stats.process} />}
        <Tile label="Hosts attached" value={String(attached)} more={` of ${stats.controllers.length} controllers`} />
      </dl>
      <div class="cards">
        <Chart
          title="Commands of all controllers"
          lines={[
            { label: "reads in a second", series: history.totals.read_iops, colour: 0 },
            { label: "writes in a second", series: history.totals.write_iops, colour: 1 },
          ]}
          shown={amount}
        />
        <Chart
          title="Bandwidth of all controllers"
          bytes
          lines={[
            { label: "read", series: history.totals.read_bandwidth, colour: 0 },
            { label: "written", series: history.totals.write_bandwidth, colour: 1 },
          ]}
          shown={bandwidth}
        />
      </div>
      <Controllers />
      <Reactors />
    </>
  );
}

/** The number of the server's process, and how it has replaced the last one. */
function Process({ process: { generation, before } }: { process: ServerProcess }) {
  const how =
    before === undefined
      ? ""
      : ` after ${before.cause}: pause ${before.pause_ms} ms, ${before.replayed} commands executed again, ${before.interrupted} interrupted`;
  return <Tile label="Process" value={String(generation)} more={how} />;
}

function Controllers() {
  const { stats, history } = useStore();
  const [search, setSearch] = useState("");
  const all = stats?.controllers ?? [];
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (one: Controller) =>
    [one.name, one.subsystem ?? "", one.tenant ?? "", one.listen, ...one.namespaces, one.identity?.serial ?? "", one.attached ? `attached ${hostOf(one)}` : ""]
      .join(" ")
      .toLowerCase();
  const found = words.length === 0 ? all : all.filter((one) => words.every((word) => text(one).includes(word)));
  const number = (one: Controller, name: NumberName) => history.controllers.get(one.name)?.last?.numbers[name] ?? null;
  const both = (one: Controller, a: NumberName, b: NumberName) => {
    const [x, y] = [number(one, a), number(one, b)];
    return x === null && y === null ? null : (x ?? 0) + (y ?? 0);
  };
  const rate = (title: string, value: (one: Controller) => number | null, shown: (n: number | null) => string): Column<Controller> => ({
    title,
    cell: (one) => shown(value(one)),
    by: (one) => value(one) ?? -1,
  });
  const columns: Column<Controller>[] = [
    { title: "Controller", cell: (one) => <a href={link.controller(one.name)}>{one.name}</a>, by: (one) => one.name, text: true },
    { title: "Host", cell: (one) => hostOf(one) ?? "none", by: (one) => (one.attached ? 0 : 1), text: true },
    rate("IOPS", (one) => both(one, "read_iops", "write_iops"), amount),
    rate("Bandwidth", (one) => both(one, "read_bandwidth", "write_bandwidth"), bandwidth),
    rate("p50", (one) => number(one, "p50"), time),
    rate("p99", (one) => number(one, "p99"), time),
    rate("In flight", (one) => number(one, "depth") ?? number(one, "in_flight"), (n) => amount(n === null ? null : Math.round(n))),
    rate("Errors/s", (one) => number(one, "errors"), amount),
    { title: "Namespaces", cell: (one) => one.namespaces.join(", ") || "none", text: true },
  ];
  return (
    <Card title="Controllers" {...(all.length > MOST ? { about: `${without(MOST)} Numbers of a second, those in flight and errors are of these.` } : {})} wide>
      <div class="row">
        <label for="search">Search by name, serial number, subsystem, tenant, namespace, host or “attached”</label>
        <input id="search" type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <span role="status">
          {found.length} of {all.length}
        </span>
      </div>
      <LongTable
        label="Controllers"
        items={found}
        name={(one) => one.name}
        columns={columns}
        empty={all.length === 0 ? "There are no controllers yet: nvmirage create controller makes one." : "No controller has these words."}
      />
    </Card>
  );
}

const COLOURS = { busy: 0, spinning: 1, asleep: 5, stalled: 3 } as const;

function Reactors() {
  const { stats, history } = useStore();
  return (
    <Card title="Reactors" about="Where the time of each went in the last second. Busy and spinning burn a CPU." wide>
      <ul class="reactors">
        {(stats?.reactors ?? []).map((reactor) => {
          const parts = history.reactors.get(reactor.reactor);
          const label = `reactor ${reactor.reactor}, ${reactor.mode}${reactor.cpu === undefined ? "" : `, CPU ${reactor.cpu}`}`;
          return (
            <li key={reactor.reactor}>
              <span>{label}</span>
              {parts === undefined ? (
                <span>nothing is known yet</span>
              ) : (
                <Parts label={label} parts={REACTOR_STATES.map((name) => ({ name, part: parts[name], colour: COLOURS[name] }))} shown={percent} />
              )}
            </li>
          );
        })}
      </ul>
    </Card>
  );
}
