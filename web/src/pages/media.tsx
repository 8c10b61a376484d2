import * as api from "../api.ts";
import { Alert, Card, link, useAsked } from "../parts/bits.tsx";
import { type Column, LongTable } from "../parts/table.tsx";
import { bytes } from "../format.ts";
import { useStore } from "../store.ts";
import type { Medium } from "../types.ts";
import { Knobs } from "./knobs.tsx";
import { MapOf } from "./map.tsx";

export function Media() {
  const { stats } = useStore();
  const columns: Column<Medium>[] = [
    { title: "Medium", cell: (one) => <a href={link.medium(one.name)}>{one.name}</a>, by: (one) => one.name, text: true },
    { title: "Kind", cell: (one) => one.kind, by: (one) => one.kind, text: true },
    { title: "Timing", cell: (one) => one.timing?.preset ?? "none", by: (one) => one.timing?.preset ?? "", text: true },
    { title: "Size", cell: (one) => bytes(one.bytes), by: (one) => one.bytes },
    { title: "Fails", cell: (one) => failing(one) ?? "no", by: (one) => failing(one) ?? "", text: true },
    { title: "What it is", cell: (one) => one.description, text: true },
  ];
  return (
    <>
      <h2>Media</h2>
      <Card title="All media" wide>
        <LongTable label="Media" items={stats?.media ?? []} name={(one) => one.name} columns={columns} empty="There are no media yet: nvmirage create media makes one." />
      </Card>
    </>
  );
}

/** Why requests to it fail now; null where they do not. */
function failing(medium: Medium): string | null {
  const causes = (medium.errors ?? []).filter((one) => one.current).map((one) => one.cause);
  return causes.length === 0 ? null : causes.join(", ");
}

export function MediumPage({ name }: { name: string }) {
  const { stats, server } = useStore();
  const medium = stats?.media.find((one) => one.name === name);
  if (stats === null) return <p>Waiting for the server's first answer…</p>;
  if (medium === undefined) {
    return (
      <>
        <h2>Medium {name}</h2>
        <p>
          There is no medium of this name, or no longer. <a href="#/media">All media</a>
        </p>
      </>
    );
  }
  const namespaces = stats.namespaces.filter((one) => one.media === name);
  const controllers = [...new Set(namespaces.flatMap((one) => one.controllers))];
  return (
    <>
      <h2>Medium {name}</h2>
      <p class="facts">
        {medium.description}; {bytes(medium.bytes)}; namespaces {namespaces.map((one) => one.name).join(", ") || "none"}; controllers{" "}
        {controllers.length === 0 && "none"}
        {controllers.map((one, index) => (
          <span key={one}>
            {index > 0 && ", "}
            <a href={link.controller(one)}>{one}</a>
          </span>
        ))}
      </p>
      {(medium.errors ?? []).map((one) => (
        <p class="facts" key={one.cause}>
          {one.count} requests failed: {one.cause}
          {one.os_error === undefined ? "" : ` (${one.os_error})`}
          {one.current ? "; they fail now" : "; it works again"}
        </p>
      ))}
      {medium.timing === undefined ? (
        <Card title="Timing" wide>
          <p>This medium has no timing: its commands take the time that they take.</p>
        </Card>
      ) : (
        <Knobs key={server} medium={name} controllers={controllers} />
      )}
      <Map name={name} />
    </>
  );
}

function Map({ name }: { name: string }) {
  const { value, error } = useAsked(() => api.map(name), name, 1000);
  if (value === null) return <Alert error={error} />;
  return <MapOf map={value} />;
}
