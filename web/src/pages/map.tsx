// What a medium looks like inside: flash lines by valid pages and wear, zones by state, pairs.

import { useState } from "preact/hooks";

import { Card, Readout, Sideways, Tile } from "../parts/bits.tsx";
import { bytes, NONE, percent, time, whole } from "../format.ts";
import type { FlashMap, FlashPartition, MediumMap, Model, ZoneMap } from "../types.ts";

export function MapOf({ map }: { map: MediumMap }) {
  return (
    <div class="cards">
      {map.model?.flash !== undefined && <FlashNumbers model={map.model} />}
      {map.flash !== undefined && <Flash flash={map.flash} />}
      {map.zones !== undefined && <Zones zones={map.zones} />}
      {map.pairs !== undefined && (
        <Card title="Pairs">
          <dl class="tiles">
            <Tile label="Pairs" value={whole(map.pairs.pairs)} more={` of ${whole(map.pairs.most_pairs)}`} />
            <Tile label="Keys" value={bytes(map.pairs.key_bytes)} />
            <Tile label="Values" value={bytes(map.pairs.value_bytes)} />
            <Tile label="Free" value={bytes(map.pairs.free_bytes)} />
          </dl>
        </Card>
      )}
      {map.model !== undefined && <Busy model={map.model} />}
    </div>
  );
}

function FlashNumbers({ model }: { model: Model }) {
  const { flash, buffer } = model;
  if (flash === undefined) return null;
  const amplification = flash.host_pages === 0 ? null : (flash.host_pages + flash.collected_pages) / flash.host_pages;
  return (
    <Card title="Flash" wide>
      <dl class="tiles">
        <Tile label="Write amplification" value={amplification === null ? NONE : amplification.toFixed(2)} />
        <Tile label="Free lines" value={whole(flash.lines.free)} more={` of ${whole(flash.lines.all)}`} />
        <Tile label="Collections" value={whole(flash.collections.foreground)} more={` and ${whole(flash.collections.background)} while idle`} />
        <Tile label="Erases of a line" value={flash.wear.mean.toFixed(2)} more={`, ${flash.wear.least} to ${flash.wear.most}`} />
        {buffer !== undefined && <Tile label="Write buffer" value={bytes(buffer.used_bytes)} more={` of ${bytes(buffer.bytes)}`} />}
        <Tile label="Unmapped reads" value={whole(flash.unmapped_reads)} />
        <Tile label="Stalls" value={whole(model.stalls.count)} more={`, ${time(model.stalls.time_ns)} in all`} />
      </dl>
    </Card>
  );
}

/** Steps of validity and of wear that a cell is drawn in. */
const STEPS = 6;

interface Cell {
  /** The class of its colour. */
  fill: string;
  /** Its letter, as colours alone say nothing to some. */
  letter: string;
  text: string;
}

function lineCell(flash: FlashMap, partition: FlashPartition, at: number, by: "valid" | "wear", most: number): Cell {
  const { cells } = partition;
  const [free, open, full] = [cells.free[at] ?? 0, cells.open[at] ?? 0, cells.full[at] ?? 0];
  const lines = free + open + full;
  const erases = cells.erases[at] ?? 0;
  const first = at * flash.lines_per_cell;
  const name = lines === 1 ? `line ${first}` : `lines ${first} to ${first + lines - 1}`;
  const used = open + full;
  const valid = used === 0 ? 0 : (cells.valid_pages[at] ?? 0) / (used * flash.geometry.pages_per_line);
  const text = `${name}: ${full} full, ${open} open, ${free} free; ${percent(valid)} of the pages of those in use valid; erased ${whole(erases)} times`;
  if (by === "wear") {
    const mean = lines === 0 ? 0 : erases / lines;
    const step = most === 0 ? 0 : Math.min(STEPS - 1, Math.floor((mean / most) * STEPS));
    return { fill: `heat-${step + 1}`, letter: "", text };
  }
  if (used === 0) return { fill: "free", letter: "", text };
  return { fill: `heat-${1 + Math.min(STEPS - 1, Math.floor(valid * STEPS))}`, letter: open > 0 ? "o" : "", text };
}

function Flash({ flash }: { flash: FlashMap }) {
  const [by, setBy] = useState<"valid" | "wear">("valid");
  const most = Math.max(0, ...flash.partitions.flatMap((one) => one.cells.most_erases));
  const per = flash.lines_per_cell === 1 ? "a line" : `${flash.lines_per_cell} lines`;
  return (
    <Card
      title="Flash map"
      about={`Each cell is ${per} of ${whole(flash.geometry.pages_per_line)} pages; an o is in a line that is being written. A write collects a line where its partition has ${flash.collect_below} free lines or fewer.`}
      wide
    >
      <fieldset class="row">
        <legend class="hidden">Colours show</legend>
        <label>
          <input type="radio" name="map-by" checked={by === "valid"} onChange={() => setBy("valid")} /> Valid pages
        </label>
        <label>
          <input type="radio" name="map-by" checked={by === "wear"} onChange={() => setBy("wear")} /> Wear
        </label>
      </fieldset>
      {flash.partitions.map((partition, index) => (
        <div key={index}>
          <h4>
            Partition {index}: {whole(partition.free_lines)} free, {whole(partition.full_lines)} full, {partition.open_lines.length} open lines
          </h4>
          <Grid
            label={`Partition ${index}, by ${by === "valid" ? "valid pages" : "wear"}`}
            hint={index === 0}
            cells={partition.cells.free.map((_, at) => lineCell(flash, partition, at, by, most))}
          />
        </div>
      ))}
      <ul class="legend" aria-label="Colours">
        {by === "valid" && (
          <li>
            <span class="box free" aria-hidden="true" /> free
          </li>
        )}
        {Array.from({ length: STEPS }, (_, step) => (
          <li key={step}>
            <span class={`box heat-${step + 1}`} aria-hidden="true" />{" "}
            {by === "valid"
              ? `${Math.round((step / STEPS) * 100)}–${Math.round(((step + 1) / STEPS) * 100)} % valid`
              : `${((step / STEPS) * most).toFixed(1)}–${(((step + 1) / STEPS) * most).toFixed(1)} erases`}
          </li>
        ))}
      </ul>
      <Histogram flash={flash} />
    </Card>
  );
}

/** Full lines by how many of their pages are valid, in tenths. */
function Histogram({ flash }: { flash: FlashMap }) {
  const all = flash.full_lines_by_valid;
  const most = Math.max(1, ...all);
  return (
    <>
      <h4>Full lines by valid pages</h4>
      <Sideways label="Full lines by valid pages">
        <table aria-label="Full lines by valid pages" class="columns">
          <thead>
            <tr>
              <th scope="col" class="text">
                Valid
              </th>
              {all.map((_, index) => (
                <th key={index} scope="col">
                  {Math.round((index / all.length) * 100)}–{Math.round(((index + 1) / all.length) * 100)} %
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr aria-hidden="true">
              <td />
              {all.map((count, index) => (
                <td key={index}>
                  <svg width="100%" height="48" viewBox="0 0 10 48" preserveAspectRatio="none">
                    <rect class="fill-0" x="1" width="8" y={48 - (count / most) * 48} height={(count / most) * 48} />
                  </svg>
                </td>
              ))}
            </tr>
            <tr>
              <th scope="row" class="text">
                Lines
              </th>
              {all.map((count, index) => (
                <td key={index}>{whole(count)}</td>
              ))}
            </tr>
          </tbody>
        </table>
      </Sideways>
    </>
  );
}

const STATES = ["empty", "open", "closed", "full", "lost"] as const;
const LETTERS = { empty: "", open: "o", closed: "c", full: "f", lost: "x" } as const;

function zoneCell(zones: ZoneMap, at: number): Cell {
  const { cells } = zones;
  const counts = STATES.map((state) => [state, cells[state][at] ?? 0] as const);
  const there = counts.reduce((sum, [, n]) => sum + n, 0);
  const written = cells.written_bytes[at] ?? 0;
  // what an operator looks for first
  const rare = (["lost", "open", "closed", "full", "empty"] as const).find((state) => (cells[state][at] ?? 0) > 0) ?? "empty";
  const first = at * zones.zones_per_cell;
  const name = there <= 1 ? `zone ${first}` : `zones ${first} to ${first + there - 1}`;
  const text = `${name}: ${counts
    .filter(([, n]) => n > 0)
    .map(([state, n]) => (there === 1 ? state : `${n} ${state}`))
    .join(", ")}; ${bytes(written)} written`;
  return { fill: `zone-${rare}`, letter: LETTERS[rare], text };
}

function Zones({ zones }: { zones: ZoneMap }) {
  const per = zones.zones_per_cell === 1 ? "a zone" : `${zones.zones_per_cell} zones`;
  const most = (n: number) => (n === 0 ? "no limit" : String(n));
  return (
    <Card title="Zone map" about={`Each cell is ${per} of ${bytes(zones.zone_bytes)}, of which ${bytes(zones.capacity_bytes)} can be written.`} wide>
      <dl class="tiles">
        <Tile label="Zones" value={whole(zones.zones)} />
        <Tile label="Open" value={whole(zones.open)} more={` of ${most(zones.max_open)}`} />
        <Tile label="Active" value={whole(zones.active)} more={` of ${most(zones.max_active)}`} />
        {Object.entries(zones.states)
          .filter(([, n]) => n > 0)
          .map(([state, n]) => (
            <Tile key={state} label={state} value={whole(n)} />
          ))}
      </dl>
      <Grid label="Zones by state" hint cells={zones.cells.empty.map((_, at) => zoneCell(zones, at))} />
      <ul class="legend" aria-label="Letters and colours">
        {STATES.map((state) => (
          <li key={state}>
            <span class={`box zone-${state}`} aria-hidden="true">
              {LETTERS[state]}
            </span>{" "}
            {state === "lost" ? "read-only or offline" : state}
          </li>
        ))}
      </ul>
    </Card>
  );
}

const COLUMNS = 64;

/** Cells in rows. One has the focus, which arrow keys move, and is read out below. */
function Grid({ label, hint, cells }: { label: string; hint: boolean; cells: Cell[] }) {
  const [at, setAt] = useState<number | null>(null);
  const rows = Math.ceil(cells.length / COLUMNS);
  const wide = Math.min(COLUMNS, cells.length);
  const move = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -COLUMNS, ArrowDown: COLUMNS }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    setAt(at === null ? 0 : Math.min(Math.max(at + by, 0), cells.length - 1));
  };
  const size = 12;
  const chosen = at === null ? undefined : cells[at];
  return (
    <>
      <svg
        class="grid"
        viewBox={`0 0 ${wide * size} ${rows * size}`}
        style={{ maxWidth: `${Math.max(240, wide * 22)}px` }}
        role="application"
        aria-roledescription="map"
        tabindex={0}
        aria-label={`${label}: ${cells.length} cells. Arrow keys move a cursor whose cell is read out.`}
        onKeyDown={move}
        onPointerMove={(event) => {
          const index = (event.target as SVGElement).dataset["at"];
          if (index !== undefined) setAt(Number(index));
        }}
      >
        {cells.map((cell, index) => {
          const [x, y] = [(index % COLUMNS) * size, Math.floor(index / COLUMNS) * size];
          return [
            <rect key={index} data-at={index} class={cell.fill} x={x + 0.5} y={y + 0.5} width={size - 1} height={size - 1} rx="1.5" />,
            cell.letter !== "" && (
              <text key={`t${index}`} class={`on-${cell.fill}`} x={x + size / 2} y={y + 8.7} data-at={index}>
                {cell.letter}
              </text>
            ),
          ];
        })}
        {at !== null && <rect class="cursor" x={(at % COLUMNS) * size + 0.5} y={Math.floor(at / COLUMNS) * size + 0.5} width={size - 1} height={size - 1} rx="1.5" />}
      </svg>
      <Readout at={chosen === undefined ? null : `${label} ${at}`} text={chosen?.text ?? (hint ? "Point at a cell, or move to the map and use the arrow keys." : "")} />
    </>
  );
}

function Busy({ model }: { model: Model }) {
  const all = model.busy.reduce((sum, one) => sum + one.busy_ns, 0);
  if (all === 0) return null;
  return (
    <Card title="Component activity" about="Busy time of each kind of component by kind of work, summed over components, since the server started." wide>
      <Sideways label="Work">
        <table aria-label="Work">
          <thead>
            <tr>
              {["Part", "Work", "Operations", "Time", "Of all"].map((title, index) => (
                <th key={title} scope="col" class={index < 2 ? "text" : ""}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {model.busy.map((one) => (
              <tr key={`${one.server} ${one.work}`}>
                <th scope="row" class="text">
                  {one.server} ({whole(model.servers.find((server) => server.server === one.server)?.count ?? 1)})
                </th>
                <td class="text">{one.work}</td>
                <td>{whole(one.operations)}</td>
                <td>{time(one.busy_ns)}</td>
                <td>{percent(one.busy_ns / all)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Sideways>
    </Card>
  );
}
