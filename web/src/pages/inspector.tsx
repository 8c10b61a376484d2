// Every ring of a controller as it is now, with the commands in flight.

import { useState } from "preact/hooks";

import * as api from "../api.ts";
import { Alert, Card, Sideways, useAsked } from "../parts/bits.tsx";
import { bytes, NONE, time, whole } from "../format.ts";
import type { CompletionQueue, QueuedCommand, SubmissionQueue } from "../types.ts";

export function Inspector({ name }: { name: string }) {
  const [open, setOpen] = useState(false);
  return (
    <Card title="Queues" about="Heads, tails, doorbells and commands in flight, read twice a second while this is open." wide>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Close the inspector" : "Open the inspector"}
      </button>
      {open && <Rings name={name} />}
    </Card>
  );
}

function Rings({ name }: { name: string }) {
  const { value, error } = useAsked(() => api.queues(name), name, 500);
  if (value === null) return error === null ? <p>Looking…</p> : <Alert error={error} />;
  const hasManyHosts = value.doorbells === "none";
  const owners = hasManyHosts ? (value.hosts ?? []).map((host) => ({ ...host, of: `host ${host.cntlid.toString(16)}h` })) : [{ ...value, of: "" }];
  const rings = owners.flatMap(({ of, admin, queues }) => [...(admin === undefined ? [] : [admin]), ...queues].map((queue) => ({ of, queue })));
  const all = rings.map(({ queue }) => queue);
  const commands = all.flatMap((queue) => queue.submission_queues.flatMap((one) => one.commands));
  const stuck = commands.filter((one) => one.stuck).length;
  const leftOut = all.reduce((sum, queue) => sum + queue.submission_queues.reduce((n, one) => n + one.left_out, 0), 0);
  return (
    <>
      <Alert error={error} />
      <p>
        {hasManyHosts ? "Each host has queues of its own." : `Doorbells are ${value.doorbells}.`} {whole(commands.length + leftOut)} commands are in rings or in flight
        {stuck > 0 ? <strong>, and {whole(stuck)} of them are stuck: older than {time(value.stuck_after_ns)}</strong> : ""}.
        {(value.hosts_left_out ?? 0) > 0 && ` ${whole(value.hosts_left_out)} more hosts are not shown.`}
      </p>
      <Sideways label="Rings">
        <table class="rings" aria-label="Rings">
          <thead>
            <tr>
              {["Ring", "Reactor", "Size", "Fill", "Head", "Tail", "Doorbell", "Shadow", "EventIdx", "Waiting", "In flight", "Notes"].map((title, index) => (
                <th key={title} scope="col" class={index === 0 || index === 11 ? "text" : ""}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rings.flatMap(({ of, queue }) => [
              <Completion key={`${of}c${queue.queue}`} queue={queue} of={of} />,
              ...queue.submission_queues.map((one) => <Submission key={`${of}s${one.queue}`} queue={one} reactor={queue.reactor} of={of} />),
            ])}
          </tbody>
        </table>
      </Sideways>
      <Commands commands={commands} leftOut={leftOut} />
    </>
  );
}

function Completion({ queue, of }: { queue: CompletionQueue; of: string }) {
  const notes = [
    of,
    queue.moving === true ? "is moved to another reactor" : "",
    queue.full === true ? "full until the host takes completions" : "",
    queue.vector === undefined ? "" : `vector ${queue.vector}`,
    queue.phase === undefined ? "" : `phase ${queue.phase ? 1 : 0}`,
    (queue.reserved ?? 0) > 0 ? `${queue.reserved} reserved` : "",
  ];
  return (
    <tr>
      <th scope="row" class="text">
        CQ {queue.queue}
      </th>
      <td>{queue.reactor}</td>
      <Numbers size={queue.size} used={queue.posted} head={queue.head} tail={queue.tail} doorbell={queue.doorbell} shadow={queue.shadow} eventIdx={queue.event_idx} />
      <td>{NONE}</td>
      <td>{whole(queue.in_flight)}</td>
      <td class="text notes">{notes.filter(Boolean).join("; ")}</td>
    </tr>
  );
}

function Submission({ queue, reactor, of }: { queue: SubmissionQueue; reactor: number; of: string }) {
  const notes = [of, queue.frozen === undefined ? "" : `frozen: ${queue.frozen}`, queue.priority === undefined ? "" : `priority ${queue.priority}`];
  return (
    <tr class={queue.frozen === undefined ? "" : "bad"}>
      <th scope="row" class="text">
        SQ {queue.queue}
      </th>
      <td>{reactor}</td>
      <Numbers size={queue.size} used={queue.waiting} head={queue.head} tail={queue.tail} doorbell={queue.doorbell} shadow={queue.shadow} eventIdx={queue.event_idx} />
      <td>{whole(queue.waiting)}</td>
      <td>{whole(queue.in_flight)}</td>
      <td class="text notes">{notes.filter(Boolean).join("; ")}</td>
    </tr>
  );
}

interface RingNumbers {
  size: number | undefined;
  used: number | undefined;
  head: number | undefined;
  tail: number | undefined;
  doorbell: number | undefined;
  shadow: number | undefined;
  eventIdx: number | undefined;
}

function Numbers({ size, used, head, tail, doorbell, shadow, eventIdx }: RingNumbers) {
  const shown = (value: number | undefined) => (value === undefined ? NONE : String(value));
  return (
    <>
      <td>{shown(size)}</td>
      <td>
        {size === undefined || used === undefined ? NONE : <meter min={0} max={size} value={used} title={`${used} of ${size} entries`} aria-label={`${used} of ${size} entries`} />}
      </td>
      <td>{shown(head)}</td>
      <td>{shown(tail)}</td>
      <td>{shown(doorbell)}</td>
      <td>{shown(shadow)}</td>
      <td>{shown(eventIdx)}</td>
    </>
  );
}

const SHOWN = 100;

function Commands({ commands, leftOut }: { commands: QueuedCommand[]; leftOut: number }) {
  const oldest = [...commands].sort((a, b) => (b.age_ns ?? -1) - (a.age_ns ?? -1)).slice(0, SHOWN);
  const more = commands.length - oldest.length + leftOut;
  return (
    <>
      <h4>Commands in flight, the oldest first</h4>
      <Sideways label="Commands">
        <table aria-label="Commands in flight">
          <thead>
            <tr>
              {["Command", "SQ", "CID", "Namespace", "LBA", "Bytes", "Where", "Age", "Stuck"].map((title) => (
                <th key={title} scope="col" class={["Command", "Where", "Stuck"].includes(title) ? "text" : ""}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {oldest.map((one, index) => (
              <tr key={`${one.queue}/${one.cid}/${index}`} class={one.stuck ? "bad" : ""}>
                <th scope="row" class="text">
                  {one.command}
                  {one.fua ? ", FUA" : ""}
                </th>
                <td>{one.queue}</td>
                <td>{one.cid}</td>
                <td>{one.nsid}</td>
                <td>{one.lba === undefined ? NONE : whole(one.lba)}</td>
                <td>{bytes(one.bytes)}</td>
                <td class="text">{one.at}</td>
                <td>{time(one.age_ns)}</td>
                <td class="text">{one.stuck ? "stuck" : "no"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Sideways>
      {more > 0 && <p>and {whole(more)} more.</p>}
    </>
  );
}
