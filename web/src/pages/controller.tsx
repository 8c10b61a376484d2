import { Card, link, Parts, Sideways, Tile } from "../parts/bits.tsx";
import { Chart } from "../parts/chart.tsx";
import { HeatMap } from "../parts/heatmap.tsx";
import { type Column, LongTable } from "../parts/table.tsx";
import { Inspector } from "./inspector.tsx";
import { amount, bandwidth, percent, time, whole } from "../format.ts";
import { type ControllerHistory, MOST, STAGES } from "../history.ts";
import { count, percentile } from "../histogram.ts";
import { useStore } from "../store.ts";
import type { Association, Controller, Protocol } from "../types.ts";

/** Why there is no history of some controllers. */
export const without = (most: number) => `This page remembers the first ${most} controllers.`;

export function ControllerPage({ name }: { name: string }) {
  const { stats, history } = useStore();
  if (stats === null) return <p>Waiting for the server's first answer…</p>;
  const controller = stats.controllers.find((one) => one.name === name);
  const its = history.controllers.get(name);
  if (controller !== undefined && its === undefined) {
    return (
      <>
        <h2>Controller {name}</h2>
        <Facts controller={controller} />
        <Associations controller={controller} />
        <p>{without(MOST)} Of this one it has no numbers over time.</p>
        <Inspector name={name} />
      </>
    );
  }
  if (controller === undefined || its === undefined) {
    return (
      <>
        <h2>Controller {name}</h2>
        <p>
          There is no controller of this name, or no longer. <a href="#/">All controllers</a>
        </p>
      </>
    );
  }
  const now = its.last?.numbers;
  return (
    <>
      <h2>Controller {name}</h2>
      <Facts controller={controller} />
      <dl class="tiles">
        <Tile label="Commands/s" value={amount((now?.read_iops ?? 0) + (now?.write_iops ?? 0))} />
        <Tile label="Bandwidth" value={bandwidth((now?.read_bandwidth ?? 0) + (now?.write_bandwidth ?? 0))} />
        <Tile label="Latency p50" value={time(now?.p50)} />
        <Tile label="Latency p99" value={time(now?.p99)} />
        <Tile label="In flight" value={amount(now?.depth ?? now?.in_flight)} />
        <Tile label="Errors/s" value={amount(now?.errors)} />
      </dl>
      <div class="cards">
        <HeatMap history={its} />
        <Charts its={its} controller={controller} />
        <ByOperation controller={controller} its={its} />
        <Associations controller={controller} />
      </div>
      <Inspector name={name} />
    </>
  );
}

/** Names of protocols and of their hosts. */
const HOSTS: Record<Protocol, { protocol: string; one: string; several: string }> = {
  "nvme-tcp": { protocol: "NVMe/TCP", one: "host over TCP", several: "hosts over TCP" },
  nbd: { protocol: "NBD", one: "NBD client", several: "NBD clients" },
  "vhost-user-blk": { protocol: "vhost-user-blk", one: "front end", several: "front ends" },
  ublk: { protocol: "ublk", one: "block device", several: "block devices" },
};

/** The host of a controller in words, where it has one. */
export function hostOf({ attached, host, hosts, disk }: Controller): string | undefined {
  if (!attached) return undefined;
  if (disk !== undefined) return disk;
  if (hosts !== undefined) {
    const { one, several } = HOSTS[hosts[0]?.protocol ?? "nvme-tcp"];
    return `${hosts.length} ${hosts.length === 1 ? one : several}`;
  }
  return host === undefined ? "A host" : `${host.command ?? "Process"} (${host.process})`;
}

/** The protocol of a host as shown. */
export function protocolOf({ protocol }: Association): string {
  return HOSTS[protocol].protocol;
}

/** Where a host has come from: its address, a UNIX socket, or the path of a block device. */
export function addressOf({ protocol, address }: Association, { disk }: Controller): string {
  if (protocol === "ublk") return disk ?? "Block device";
  return address ?? "UNIX socket";
}

/** The hosts of a controller over NVMe/TCP, NBD, vhost-user-blk or ublk. */
function Associations({ controller }: { controller: Controller }) {
  const hosts = controller.hosts ?? [];
  if (hosts.length === 0) return null;
  const columns: Column<Association>[] = [
    { title: "Protocol", cell: protocolOf, by: protocolOf, text: true },
    { title: "Host or export", cell: (one) => one.export ?? one.nqn ?? "", by: (one) => one.export ?? one.nqn ?? "", text: true },
    { title: "Address", cell: (one) => addressOf(one, controller), by: (one) => addressOf(one, controller), text: true },
    { title: "Controller identifier", cell: (one) => `0x${one.cntlid.toString(16)}`, by: (one) => one.cntlid },
    { title: "TLS", cell: (one) => (one.tls ? "Yes" : "No"), by: (one) => Number(one.tls) },
    { title: "I/O queues", cell: (one) => one.io_queues, by: (one) => one.io_queues },
    { title: "Connected", cell: (one) => time(one.connected_ms * 1e6), by: (one) => one.connected_ms },
  ];
  return (
    <Card title="Hosts" wide>
      <LongTable label="Hosts" items={hosts} name={(one) => `${one.cntlid}`} columns={columns} empty="No host is attached." />
    </Card>
  );
}

function Facts({ controller }: { controller: Controller }) {
  const { stats } = useStore();
  const media = new Set(
    controller.namespaces.map((name) => stats?.namespaces.find((one) => one.name === name)?.media).filter((one) => one !== undefined),
  );
  const groups = Object.entries(controller.ana ?? {}).map(([group, state]) => `${group} ${state}`);
  return (
    <p class="facts">
      {hostOf(controller) ?? "No host"} {(controller.hosts?.length ?? 1) > 1 ? "are" : "is"} attached at <code>{controller.listen}</code>; subsystem {controller.subsystem ?? controller.name}, namespaces{" "}
      {controller.namespaces.join(", ") || "none"}
      {controller.tenant === undefined ? "" : `, tenant ${controller.tenant}`}
      {groups.length === 0 ? "" : `, ANA groups ${groups.join(", ")}`}
      {controller.device === undefined ? "" : `, block device ${controller.disk === undefined ? "" : `${controller.disk} `}${controller.device}`}; media{" "}
      {[...media].map((one, index) => (
        <span key={one}>
          {index > 0 && ", "}
          <a href={link.medium(one)}>{one}</a>
        </span>
      ))}
      {controller.identity !== undefined && (
        <>
          ; serial number <code>{controller.identity.serial}</code>, NQN <code>{controller.identity.subnqn}</code>
        </>
      )}
    </p>
  );
}

function Charts({ its, controller }: { its: ControllerHistory; controller: Controller }) {
  const { numbers, stages } = its;
  return (
    <>
      <Chart
        title="Commands"
        lines={[
          { label: "reads in a second", series: numbers.read_iops, colour: 0 },
          { label: "writes in a second", series: numbers.write_iops, colour: 1 },
        ]}
        shown={amount}
      />
      <Chart
        title="Bandwidth"
        bytes
        lines={[
          { label: "read", series: numbers.read_bandwidth, colour: 0 },
          { label: "written", series: numbers.write_bandwidth, colour: 1 },
        ]}
        shown={bandwidth}
      />
      <Chart
        title="Latency"
        factors
        about="Latency that the given percentage of the sampled commands of each second does not exceed."
        lines={[
          { label: "p50", series: numbers.p50, colour: 0 },
          { label: "p99", series: numbers.p99, colour: 1 },
          { label: "p99.9", series: numbers.p999, colour: 2 },
        ]}
        shown={time}
      />
      <Chart
        title="Queue depth"
        about="Fetched and not completed when looked at; and on average over the second, by Little's law."
        lines={[
          { label: "when looked at", series: numbers.in_flight, colour: 0 },
          { label: "on average", series: numbers.depth, colour: 4 },
        ]}
        shown={amount}
      />
      <Chart
        title="Where the time goes"
        about="Of a watched command on average, stage upon stage."
        stacked
        lines={STAGES.map((stage, colour) => ({ label: stage, series: stages[stage], colour }))}
        shown={time}
      />
      <Chart title="Errors" lines={[{ label: "errors in a second", series: numbers.errors, colour: 3 }]} shown={amount}>
        <Errors controller={controller} />
      </Chart>
    </>
  );
}

function ByOperation({ controller, its }: { controller: Controller; its: ControllerHistory }) {
  const rows = controller.latency.map((one) => ({ one, last: its.last?.latency.get(one.operation) ?? [] }));
  const all = controller.stages.reduce((sum, one) => sum + one.sum_ns, 0);
  return (
    <Card title="Latency by operation" about="Watched commands of the last second, and of all since the server counts." wide>
      <Sideways label="Latency by operation">
        <table>
          <thead>
            <tr>
              <th scope="col" class="text">
                Operation
              </th>
              <th scope="col">watched</th>
              <th scope="col">p50</th>
              <th scope="col">p99</th>
              <th scope="col">all watched</th>
              <th scope="col">p50 of all</th>
              <th scope="col">p99 of all</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ one, last }) => (
              <tr key={one.operation}>
                <th scope="row" class="text">
                  {one.operation}
                </th>
                <td>{whole(count(last))}</td>
                <td>{time(percentile(last, 0.5))}</td>
                <td>{time(percentile(last, 0.99))}</td>
                <td>{whole(one.count)}</td>
                <td>{time(percentile(one.buckets, 0.5))}</td>
                <td>{time(percentile(one.buckets, 0.99))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Sideways>
      <h4>Stages of all of them</h4>
      {all === 0 ? (
        <p>{controller.sample === 0 ? "No command is watched." : `No command was watched yet: one of ${controller.sample} is.`}</p>
      ) : (
        <Parts
          label="Stages"
          parts={STAGES.map((name, colour) => ({ name, colour, part: (controller.stages.find((one) => one.stage === name)?.sum_ns ?? 0) / all }))}
          shown={percent}
        />
      )}
    </Card>
  );
}

function Errors({ controller }: { controller: Controller }) {
  const { errors_by_status: errors, media_errors } = controller;
  return (
    <>
      <h4>By status, since the server started</h4>
      {errors.length > 0 && (
        <table aria-label="Errors by status">
          <thead>
            <tr>
              <th scope="col" class="text">
                Status
              </th>
              <th scope="col">commands</th>
            </tr>
          </thead>
          <tbody>
            {errors.slice(0, 8).map((one) => (
              <tr key={one.status}>
                <th scope="row" class="text status-name">
                  {one.status}
                </th>
                <td>{whole(one.count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="about">
        {errors.length === 0 ? "None. " : errors.length > 8 ? `And ${errors.length - 8} other statuses. ` : ""}Commands that a medium has ever failed: {whole(media_errors)}.
      </p>
    </>
  );
}
