// A long table: only the rows that are seen are in the document, however many there are.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { CutHint, useCut } from "./bits.tsx";

export interface Column<T> {
  title: string;
  /** What stands in a cell. */
  cell: (item: T) => ComponentChildren;
  /** What it is sorted by; without it is not. */
  by?: (item: T) => number | string;
  text?: boolean;
}

const ROW = 38;
/** Rows that are seen at once, and those around them. */
const SEEN = 14;
const AROUND = 6;

interface Props<T> {
  label: string;
  items: T[];
  name: (item: T) => string;
  columns: Column<T>[];
  empty: string;
}

export function LongTable<T>({ label, items, name, columns, empty }: Props<T>) {
  const scroll = useRef<HTMLDivElement>(null);
  const isCut = useCut(scroll);
  const [top, setTop] = useState(0);
  const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
  const sorted = order === null ? items : sort(items, columns[order.column], order.down);
  const first = Math.max(0, Math.min(Math.floor(top / ROW) - AROUND, sorted.length - SEEN - 2 * AROUND));
  const last = Math.min(sorted.length, first + SEEN + 2 * AROUND);
  // where there are fewer than before, what is seen is no longer there
  useEffect(() => {
    if (scroll.current !== null && top > sorted.length * ROW) setTop(scroll.current.scrollTop);
  }, [sorted.length]);
  const turn = (column: number) =>
    setOrder((now) => (now?.column === column ? { column, down: !now.down } : { column, down: columns[column]?.text !== true }));
  return (
    <>
      <div
        class="scroll"
        ref={scroll}
        tabIndex={0}
        role="region"
        aria-label={`${label}: scrolls`}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <table class="long" aria-label={label} aria-rowcount={sorted.length + 1}>
          <thead>
            <tr aria-rowindex={1}>
              {columns.map((column, index) => (
                <th
                  key={column.title}
                  scope="col"
                  class={column.text ? "text" : ""}
                  aria-sort={order?.column === index ? (order.down ? "descending" : "ascending") : "none"}
                >
                  {column.by === undefined ? (
                    column.title
                  ) : (
                    <button type="button" class="sort" onClick={() => turn(index)}>
                      {column.title}
                      <span aria-hidden="true">{order?.column === index ? (order.down ? " ▼" : " ▲") : ""}</span>
                    </button>
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {first > 0 && <Room height={first * ROW} columns={columns.length} />}
            {sorted.slice(first, last).map((item, index) => (
              <tr key={name(item)} aria-rowindex={first + index + 2}>
                {columns.map((column, at) =>
                  at === 0 ? (
                    <th key={column.title} scope="row" class="text">
                      {column.cell(item)}
                    </th>
                  ) : (
                    <td key={column.title} class={column.text ? "text" : ""}>
                      {column.cell(item)}
                    </td>
                  ),
                )}
              </tr>
            ))}
            {last < sorted.length && <Room height={(sorted.length - last) * ROW} columns={columns.length} />}
            {sorted.length === 0 && (
              <tr>
                <td class="text" colSpan={columns.length}>
                  {empty}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      <CutHint isCut={isCut} />
    </>
  );
}

function Room({ height, columns }: { height: number; columns: number }) {
  return (
    <tr aria-hidden="true">
      <td colSpan={columns} style={{ height: `${height}px`, padding: 0, border: 0 }} />
    </tr>
  );
}

function sort<T>(items: T[], column: Column<T> | undefined, down: boolean): T[] {
  const by = column?.by;
  if (by === undefined) return items;
  const sign = down ? -1 : 1;
  return [...items].sort((a, b) => {
    const [x, y] = [by(a), by(b)];
    const order = typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y), "en", { numeric: true }) : x - y;
    return sign * order;
  });
}
