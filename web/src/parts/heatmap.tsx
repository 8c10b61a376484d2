// Latencies over time: a column for each second, a row for each quarter of a power of two, darker where more watched commands were.
// The cursor, by pointer or arrow keys, reads a cell's numbers out.

import { useEffect, useRef, useState } from "preact/hooks";

import { clock, time } from "../format.ts";
import { type ControllerHistory, KEPT } from "../history.ts";
import { ROWS, ROWS_PER_OCTAVE, rowStart } from "../histogram.ts";
import { colour, onColours } from "../settings.ts";
import { store } from "../store.ts";
import { Readout } from "./bits.tsx";

const HEIGHT = 260;
const LEFT = 70;
const BOTTOM = 22;
/** Steps of the scale: so many commands and more. */
const STEPS = [1, 2, 5, 10, 30, 100, 300] as const;

function step(count: number): number {
  let at = -1;
  STEPS.forEach((least, index) => {
    if (count >= least) at = index;
  });
  return at;
}

/** The rows that have something, with one to spare on both sides. */
function span(columns: (Uint16Array | undefined)[]): [number, number] {
  let [first, last] = [ROWS, -1];
  for (const column of columns) {
    column?.forEach((count, row) => {
      if (count === 0) return;
      first = Math.min(first, row);
      last = Math.max(last, row);
    });
  }
  if (last < 0) return [4 * ROWS_PER_OCTAVE, 10 * ROWS_PER_OCTAVE];
  const middle = Math.max(0, 6 - (last - first));
  return [Math.max(0, first - 1 - middle), Math.min(ROWS - 1, last + 1 + middle)];
}

interface Cursor {
  /** Seconds before the newest column. */
  ago: number;
  row: number;
}

export function HeatMap({ history }: { history: ControllerHistory }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<Cursor | null>(null);
  const [width, setWidth] = useState(600);
  const [colours, setColours] = useState(0);
  useEffect(() => onColours(() => setColours((n) => n + 1)), []);
  const places = store.history.timeline.places();
  const columns = places.map((at) => history.column(at));
  const [first, last] = span(columns);
  const shown = Math.max(60, Math.min(KEPT, places.length));
  useEffect(() => {
    const element = canvas.current?.parentElement;
    if (element === null || element === undefined) return undefined;
    const watch = new ResizeObserver(() => setWidth(Math.max(240, element.clientWidth)));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current !== null) draw(canvas.current, columns, [first, last], shown, width, cursor);
  }, [store.turn, width, cursor, colours, history]);

  const at = (event: { offsetX: number; offsetY: number }): Cursor | null => {
    const ago = Math.round(((width - event.offsetX) / (width - LEFT)) * shown - 0.5);
    const row = Math.floor(first + ((HEIGHT - BOTTOM - event.offsetY) / (HEIGHT - BOTTOM)) * (last - first + 1));
    return ago >= 0 && ago < shown && row >= first && row <= last ? { ago, row } : null;
  };
  const move = (event: KeyboardEvent) => {
    const from = cursor ?? { ago: 0, row: loudest(columns[columns.length - 1]) ?? first };
    const [ago, row] =
      event.key === "ArrowLeft"
        ? [from.ago + 1, from.row]
        : event.key === "ArrowRight"
          ? [from.ago - 1, from.row]
          : event.key === "ArrowUp"
            ? [from.ago, from.row + 1]
            : event.key === "ArrowDown"
              ? [from.ago, from.row - 1]
              : [null, null];
    if (event.key === "Escape") setCursor(null);
    if (ago === null || row === null) return;
    event.preventDefault();
    setCursor({ ago: Math.min(Math.max(ago, 0), shown - 1), row: Math.min(Math.max(row, first), last) });
  };
  return (
    <section class="card chart wide" aria-label="Latency over time">
      <h3>Latency over time</h3>
      <p class="about">Each watched command, from the look that saw its doorbell until its completion was posted. Arrow keys read cells out.</p>
      <div class="plot heat">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-roledescription="heat map"
          aria-label="Latency heat map: time from left to right, latency from bottom to top. Arrow keys move a cursor whose numbers are read out."
          onPointerMove={(event) => setCursor(at(event))}
          onPointerLeave={() => setCursor(null)}
          onKeyDown={move}
        />
      </div>
      <Readout at={cursor === null ? null : `${cursor.ago} ${cursor.row}`} text={readout(cursor, places, columns)} />
      <Legend />
    </section>
  );
}

function loudest(column: Uint16Array | undefined): number | null {
  if (column === undefined) return null;
  return column.indexOf(Math.max(...column));
}

function readout(cursor: Cursor | null, places: number[], columns: (Uint16Array | undefined)[]): string {
  if (cursor === null) return "Point at a cell, or move to the map and use the arrow keys.";
  const index = columns.length - 1 - cursor.ago;
  const seconds = store.history.timeline.seconds()[index];
  if (places[index] === undefined || seconds === undefined) return "Nothing is known of that time.";
  const column = columns[index];
  const here = column?.[cursor.row] ?? 0;
  const all = column?.reduce((sum, n) => sum + n, 0) ?? 0;
  return `${clock(seconds * 1000)}, ${time(rowStart(cursor.row))} to ${time(rowStart(cursor.row + 1))}: ${here} of ${all} watched commands`;
}

function Legend() {
  return (
    <ul class="legend" aria-label="Watched commands in a cell">
      <li>commands in a cell:</li>
      {STEPS.map((least, index) => (
        <li key={least}>
          <span class={`box heat-${index}`} aria-hidden="true" /> {least}
          {index === STEPS.length - 1 ? " and more" : `${(STEPS[index + 1] ?? 0) - 1 > least ? `–${(STEPS[index + 1] ?? 0) - 1}` : ""}`}
        </li>
      ))}
    </ul>
  );
}

function draw(
  canvas: HTMLCanvasElement,
  columns: (Uint16Array | undefined)[],
  [first, last]: [number, number],
  shown: number,
  width: number,
  cursor: Cursor | null,
): void {
  const scale = devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = HEIGHT * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const ctx = canvas.getContext("2d");
  if (ctx === null) return;
  ctx.scale(scale, scale);
  const [wide, high] = [width - LEFT, HEIGHT - BOTTOM];
  const [cellWide, cellHigh] = [wide / shown, high / (last - first + 1)];
  const x = (ago: number) => LEFT + wide - (ago + 1) * cellWide;
  const y = (row: number) => high - (row - first + 1) * cellHigh;
  ctx.fillStyle = colour("well");
  ctx.fillRect(LEFT, 0, wide, high);
  const fills = STEPS.map((_, index) => colour(`heat-${index}`));
  columns.slice(-shown).forEach((column, index, all) => {
    const ago = all.length - 1 - index;
    column?.forEach((count, row) => {
      const at = step(count);
      if (at < 0) return;
      ctx.fillStyle = fills[at] ?? "";
      ctx.fillRect(x(ago), y(row), Math.max(1, cellWide - (cellWide > 4 ? 0.5 : 0)), Math.max(1, cellHigh - (cellHigh > 4 ? 0.5 : 0)));
    });
  });
  ctx.font = "12px system-ui, sans-serif";
  ctx.fillStyle = colour("muted");
  ctx.strokeStyle = colour("grid");
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const octaves = (last - first + 1) / ROWS_PER_OCTAVE;
  const every = ROWS_PER_OCTAVE * Math.max(1, Math.ceil(octaves / 7));
  for (let row = Math.ceil(first / ROWS_PER_OCTAVE) * ROWS_PER_OCTAVE; row <= last; row += every) {
    const at = y(row) + cellHigh;
    ctx.fillText(time(rowStart(row)), LEFT - 8, Math.min(Math.max(at, 8), high - 4));
    ctx.beginPath();
    ctx.moveTo(LEFT, at);
    ctx.lineTo(width, at);
    ctx.stroke();
  }
  labels(ctx, columns.length, shown, x, high);
  if (cursor === null) return;
  ctx.strokeStyle = colour("text");
  ctx.lineWidth = 2;
  ctx.strokeRect(x(cursor.ago) - 1, y(cursor.row) - 1, cellWide + 2, cellHigh + 2);
}

function labels(ctx: CanvasRenderingContext2D, there: number, shown: number, x: (ago: number) => number, high: number): void {
  const seconds = store.history.timeline.seconds();
  ctx.textBaseline = "alphabetic";
  const every = shown <= 120 ? 15 : shown <= 300 ? 60 : 120;
  let last = 0;
  for (let ago = 0; ago < Math.min(shown, there); ago += 1) {
    const at = seconds[there - 1 - ago];
    // a second may have no column, or two
    if (at === undefined || Math.floor(at / every) === Math.floor((seconds[there - 2 - ago] ?? 0) / every) || Math.abs(last - at) < every / 2) continue;
    last = at;
    ctx.textAlign = ago < every / 2 ? "right" : "center";
    if (x(ago) > LEFT + 30) ctx.fillText(clock(at * 1000), x(ago), high + 16);
  }
}
