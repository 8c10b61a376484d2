// Tenants, namespaces, hosts and events.

import { Card, link, Parts } from "../parts/bits.tsx";
import { Chart } from "../parts/chart.tsx";
import { type Column, LongTable } from "../parts/table.tsx";
import { amount, bandwidth, bytes, clock, NONE, percent, whole } from "../format.ts";
import { KEPT } from "../happenings.ts";
import { hostOf } from "./controller.tsx";
import { useStore } from "../store.ts";
import type { Controller, Happening, Namespace, Tenant } from "../types.ts";

/** Tenants that have a line of their own. */
const LINES = 6;

export function Tenants() {
  const { stats, history } = useStore();
  const tenants = stats?.tenants ?? [];
  const second = (one: Tenant) => history.tenantSeconds.get(one.name);
  const moved = tenants.reduce((sum, one) => sum + (second(one)?.bytes ?? 0), 0);
  const weights = tenants.reduce((sum, one) => sum + one.weight, 0);
  const columns: Column<Tenant>[] = [
    { title: "Tenant", cell: (one) => one.name, by: (one) => one.name, text: true },
    { title: "Class", cell: (one) => (one.goal === undefined ? one.class : `${one.class}, goal ${one.goal}`), by: (one) => one.class, text: true },
    { title: "Weight", cell: (one) => `${one.weight} (${percent(one.weight / weights)})`, by: (one) => one.weight },
    { title: "Bandwidth", cell: (one) => bandwidth(second(one)?.bytes), by: (one) => second(one)?.bytes ?? -1 },
    { title: "Share", cell: (one) => (moved === 0 ? NONE : percent((second(one)?.bytes ?? 0) / moved)), by: (one) => second(one)?.bytes ?? -1 },
    { title: "IOPS", cell: (one) => amount(second(one)?.commands), by: (one) => second(one)?.commands ?? -1 },
    { title: "Caps", cell: (one) => [one.iops === undefined ? "" : `${whole(one.iops)} IOPS`, one.bandwidth === undefined ? "" : `${one.bandwidth}/s`].filter(Boolean).join(", ") || "none", text: true },
    { title: "Waited for a cap", cell: (one) => `${amount(second(one)?.capped)}/s`, by: (one) => second(one)?.capped ?? -1 },
    { title: "Waited for its turn", cell: (one) => `${amount(second(one)?.held)}/s`, by: (one) => second(one)?.held ?? -1 },
    { title: "At media", cell: (one) => whole(one.at_media), by: (one) => one.at_media },
  ];
  const most = [...tenants].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true })).slice(0, LINES);
  return (
    <>
      <h2>Tenants</h2>
      {tenants.length > 0 && (
        <div class="cards">
          <Card title="Shares now" about={tenants.length > LINES ? `Of the first ${LINES}; the table has all.` : "Of the bytes that were moved in the last second, and by weight."}>
            <h4>Bytes</h4>
            {moved === 0 ? <p>Nothing is moved.</p> : <Parts label="Bytes" parts={most.map((one, colour) => ({ name: one.name, colour, part: (second(one)?.bytes ?? 0) / moved }))} shown={percent} />}
            <h4>Weights</h4>
            <Parts label="Weights" parts={most.map((one, colour) => ({ name: one.name, colour, part: one.weight / weights }))} shown={percent} />
          </Card>
          <Chart
            title="Bandwidth of tenants"
            bytes
            lines={most.flatMap((one, colour) => {
              const series = history.tenants.get(one.name);
              return series === undefined ? [] : [{ label: one.name, series, colour }];
            })}
            shown={bandwidth}
          />
        </div>
      )}
      <Card title="All tenants" wide>
        <LongTable label="Tenants" items={tenants} name={(one) => one.name} columns={columns} empty="There are no tenants: everybody has the media alike. nvmirage create tenant makes one." />
      </Card>
    </>
  );
}

export function Namespaces() {
  const { stats } = useStore();
  const columns: Column<Namespace>[] = [
    { title: "Namespace", cell: (one) => one.name, by: (one) => one.name, text: true },
    { title: "NSID", cell: (one) => one.nsid ?? NONE, by: (one) => one.nsid ?? -1 },
    { title: "Subsystem", cell: (one) => one.subsystem ?? "none", by: (one) => one.subsystem ?? "", text: true },
    { title: "Medium", cell: (one) => <a href={link.medium(one.media)}>{one.media}</a>, by: (one) => one.media, text: true },
    { title: "Size", cell: (one) => bytes(one.blocks * one.lba_size), by: (one) => one.blocks * one.lba_size },
    { title: "Block", cell: (one) => bytes(one.lba_size), by: (one) => one.lba_size },
    { title: "Tenant", cell: (one) => one.tenant ?? "none", by: (one) => one.tenant ?? "", text: true },
    {
      title: "Attached to",
      cell: (one) =>
        one.controllers.length === 0
          ? "none"
          : one.controllers.map((name, index) => (
              <span key={name}>
                {index > 0 && ", "}
                <a href={link.controller(name)}>{name}</a>
              </span>
            )),
      text: true,
    },
    { title: "Made by", cell: (one) => (one.made_by_host ? "a host" : "the operator"), text: true },
  ];
  return (
    <>
      <h2>Namespaces</h2>
      <Card title="All namespaces" wide>
        <LongTable label="Namespaces" items={stats?.namespaces ?? []} name={(one) => one.name} columns={columns} empty="There are no namespaces yet: nvmirage create namespace makes one." />
      </Card>
    </>
  );
}

export function Hosts() {
  const { stats } = useStore();
  const hosts = (stats?.controllers ?? []).filter((one) => one.attached);
  const reactors = (one: Controller) => [...new Set(one.placement.map((place) => place.reactor))].sort((a, b) => a - b);
  const columns: Column<Controller>[] = [
    { title: "Controller", cell: (one) => <a href={link.controller(one.name)}>{one.name}</a>, by: (one) => one.name, text: true },
    { title: "Process", cell: (one) => hostOf(one) ?? NONE, by: (one) => one.host?.process ?? -1, text: true },
    { title: "Serial number", cell: (one) => one.identity?.serial ?? NONE, by: (one) => one.identity?.serial ?? "", text: true },
    { title: "Address", cell: (one) => one.listen, by: (one) => one.listen, text: true },
    { title: "I/O queues", cell: (one) => one.placement.length, by: (one) => one.placement.length },
    { title: "Reactors", cell: (one) => reactors(one).join(", ") || NONE, text: true },
    { title: "Trapped doorbells", cell: (one) => whole(one.doorbell_messages), by: (one) => one.doorbell_messages },
  ];
  return (
    <>
      <h2>Hosts</h2>
      <Card title="Attached hosts" wide>
        <LongTable label="Hosts" items={hosts} name={(one) => one.name} columns={columns} empty="No host is attached." />
      </Card>
    </>
  );
}

export function Events() {
  const { kept, lost } = useStore().happenings;
  const columns: Column<Happening>[] = [
    { title: "Event", cell: (one) => one.event, by: (one) => one.event, text: true },
    { title: "Number", cell: (one) => one.id, by: (one) => one.id },
    { title: "Time", cell: (one) => clock(one.time_ns / 1e6), by: (one) => one.time_ns },
    { title: "Kind", cell: (one) => one.kind, by: (one) => one.kind, text: true },
    { title: "Name", cell: (one) => one.name, by: (one) => one.name, text: true },
  ];
  return (
    <>
      <h2>Events</h2>
      <Card title="Events" about={`The newest first; the server remembers the last 1024, this page ${KEPT}.`} wide>
        {lost > 0 && (
          <div class="alert" role="status" data-lost={lost}>
            {whole(lost)} {lost === 1 ? "event was" : "events were"} lost: so many were gone from the server before this page could read them.
          </div>
        )}
        <LongTable label="Events" items={[...kept].reverse()} name={(one) => `${one.id} ${one.time_ns}`} columns={columns} empty="Nothing has happened yet." />
      </Card>
    </>
  );
}
