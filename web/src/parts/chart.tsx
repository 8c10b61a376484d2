// Lines over time, drawn by uPlot, with their values as a table below: what is seen can be read, too.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { clock, NONE } from "../format.ts";
import type { Series } from "../history.ts";
import { keyOf, type Mark } from "../marks.ts";
import { colour, onColours } from "../settings.ts";
import { store } from "../store.ts";

export interface Line {
  label: string;
  series: Series;
  /** Which of the six colours. Each has a dash of its own, as colours alone say nothing to some. */
  colour: number;
}

const DASHES: number[][] = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [4, 6]];
const HEIGHT = 190;

interface Props {
  title: string;
  about?: string;
  lines: Line[];
  shown: (value: number | null) => string;
  /** Lines are parts of a whole, each drawn on top of the one before it. */
  stacked?: boolean;
  /** Its scale is of factors: from 10 to 100 is as far as from 100 to 1000. */
  factors?: boolean;
  /** Its numbers are bytes: the lines across are at powers of two, as `1 GiB`. */
  bytes?: boolean;
  marks?: Mark[];
  wide?: boolean;
  children?: ComponentChildren;
}

/** What uPlot draws: times, and a row for each line. In a stack a row is the sum of its line and all before it. */
function rows(lines: Line[], stacked: boolean): uPlot.AlignedData {
  const { timeline } = store.history;
  const places = timeline.places();
  const values = lines.map((line) => places.map((at) => line.series.get(at)));
  if (stacked) {
    for (let line = 1; line < values.length; line += 1) {
      const below = values[line - 1] ?? [];
      values[line] = (values[line] ?? []).map((value, i) => {
        const under = below[i];
        return value === null || under === null || under === undefined ? value : value + under;
      });
    }
  }
  return [timeline.seconds(), ...values] as uPlot.AlignedData;
}

/** The distances that lines across may have in bytes. */
const BINARY = Array.from({ length: 44 }, (_, power) => 2 ** power);

/** Of a scale of factors only powers of ten are labelled and have a line across: those between would crowd. */
function decades(_: uPlot, splits: number[]): (number | null)[] {
  return splits.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null));
}

function axes({ shown, bytes, factors }: Props): uPlot.Axis[] {
  const common = {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { stroke: () => colour("grid"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const clocks = (_: uPlot, times: number[]) => times.map((s) => clock(s * 1000));
  return [
    { ...common, values: clocks, space: 80, size: 30 },
    {
      ...common,
      values: (_, values) => values.map((value) => (value === null ? "" : shown(value))),
      size: 78,
      space: 32,
      ...(bytes === true ? { incrs: BINARY } : {}),
      ...(factors === true
        ? { filter: decades, grid: { ...common.grid, filter: decades }, ticks: { ...common.ticks, filter: decades } }
        : {}),
    },
  ];
}

function options(props: Props, width: number, marks: () => Mark[]): uPlot.Options {
  const stacked = props.stacked ?? false;
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "time" }, drag: { x: false, y: false } },
    scales: { x: { time: true, range: lastTenMinutes }, y: vertical(props) },
    axes: axes(props),
    hooks: { draw: [(plot) => drawMarks(plot, marks())] },
    series: [
      {},
      ...props.lines.map(
        (line, index): uPlot.Series => ({
          label: line.label,
          stroke: () => colour(`line-${line.colour}`),
          width: 2,
          dash: DASHES[line.colour % DASHES.length] ?? [],
          spanGaps: false,
          points: { show: false },
          ...(stacked && index === 0 ? { fill: () => `${colour(`line-${line.colour}`)}70` } : {}),
        }),
      ),
    ],
    bands: stacked ? bands(props.lines) : [],
  };
}

function vertical({ factors }: Props): uPlot.Scale {
  if (factors !== true) return { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] };
  const whole = (min: number, max: number): uPlot.Range.MinMax => {
    const least = 10 ** Math.floor(Math.log10(min / 1.1));
    return [least, Math.max(10 ** Math.ceil(Math.log10(max * 1.1)), least * 10)];
  };
  return { distr: 3, range: (_, min, max) => (min > 0 ? whole(min, max) : [1e3, 1e6]) };
}

/** What is filled between a line of a stack and the one below it. The lowest has no such: it is filled down to zero. */
function bands(lines: Line[]): uPlot.Band[] {
  return lines.slice(1).map((line, index) => ({
    series: [index + 2, index + 1],
    fill: () => `${colour(`line-${line.colour}`)}70`,
  }));
}

/** Charts show what there is, of at most ten minutes, and never less than one minute. */
function lastTenMinutes(_: uPlot, min: number, max: number): uPlot.Range.MinMax {
  return [Math.min(min, max - 60), max];
}

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("text");
  ctx.fillStyle = colour("text");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4, 4]);
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { ms, label } of marks) {
    const x = plot.valToPos(ms / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.textAlign = x > bbox.left + bbox.width * 0.7 ? "right" : "left";
    ctx.fillText(label, x + (ctx.textAlign === "left" ? 5 : -5) * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
}

export function Chart(props: Props) {
  const { title, about, lines, shown } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [colours, setColours] = useState(0);
  useEffect(() => onColours(() => setColours((n) => n + 1)), []);
  const labels = lines.map((line) => line.label).join("|");
  useEffect(() => {
    const div = place.current;
    if (div === null) return undefined;
    const marks = () => latest.current.marks ?? [];
    const made = new uPlot(options(latest.current, div.clientWidth || 600, marks), rows(latest.current.lines, latest.current.stacked ?? false), div);
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (div.clientWidth > 0) made.setSize({ width: div.clientWidth, height: HEIGHT });
    });
    watch.observe(div);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [labels, colours, lines[0]?.series]);
  useEffect(() => {
    plot.current?.setData(rows(lines, props.stacked ?? false));
  }, [store.turn]);
  const marks = props.marks ?? [];
  useEffect(() => plot.current?.redraw(false), [keyOf(marks)]);
  const marked = marks.map(({ ms, label }) => ` At ${clock(ms)}: ${label}.`).join("");
  return (
    <section class={props.wide === true ? "card chart wide" : "card chart"} aria-label={title}>
      <h3>{title}</h3>
      {about !== undefined && <p class="about">{about}</p>}
      <div ref={place} class="plot" role="img" aria-label={`${title}: lines over the last ten minutes. The table below has their values.${marked}`} />
      <Values lines={lines} shown={shown} />
      {props.children}
    </section>
  );
}

function Values({ lines, shown }: { lines: Line[]; shown: Props["shown"] }) {
  const places = store.history.timeline.places();
  const rows = lines.map((line) => {
    const values = places.map((at) => line.series.get(at)).filter((value) => value !== null);
    const now = values.length > 0 && places.length > 0 ? line.series.get(places[places.length - 1] ?? 0) : null;
    const [least, most] = values.length > 0 ? [Math.min(...values), Math.max(...values)] : [null, null];
    return { line, now, least, most };
  });
  return (
    <table class="values">
      <thead>
        <tr>
          <th scope="col">
            <span class="hidden">line</span>
          </th>
          <th scope="col">now</th>
          <th scope="col">least</th>
          <th scope="col">most</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ line, now, least, most }) => (
          <tr key={line.label}>
            <th scope="row">
              <Swatch colour={line.colour} /> {line.label}
            </th>
            <td data-value={now ?? ""}>{now === null ? NONE : shown(now)}</td>
            <td>{shown(least)}</td>
            <td>{shown(most)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Swatch({ colour: index }: { colour: number }) {
  return (
    <svg class="swatch" width="26" height="8" aria-hidden="true">
      <line x1="0" y1="4" x2="26" y2="4" class={`stroke-${index}`} stroke-width="2.5" stroke-dasharray={(DASHES[index % DASHES.length] ?? []).join(" ")} />
    </svg>
  );
}
