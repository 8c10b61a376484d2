// What the server answers, as far as the page uses it. `/openapi.json` has all of it. Keys of
// configurations are generated, so this file does not name them.

import type * as config from "./config.ts";

/** The server's process. */
export interface Process {
  pid: number;
  version: string;
  /** Whether another process goes on with the hosts when it dies. */
  survives: boolean;
  /** Its number, from 1. */
  generation: number;
  before?: EndedProcess;
}

/** The process before it. */
export interface EndedProcess {
  cause: string;
  pause_ms: number;
  replayed: number;
  interrupted: number;
  timing?: ContinuedTiming[];
}

/** A timing model that continues with a checkpoint. */
export interface ContinuedTiming {
  media: string;
  checkpoint_age_ms?: number;
  lost: boolean;
}

export interface Stats {
  time_ns: number;
  unix_time_ms: number;
  process: Process;
  reactors: Reactor[];
  media: Medium[];
  namespaces: Namespace[];
  tenants: Tenant[];
  controllers: Controller[];
}

export interface Reactor extends config.Reactor {
  reactor: number;
  commands: number;
  busy_ns: number;
  spinning_ns: number;
  asleep_ns: number;
  stalled_ns: number;
  sleeps: number;
}

export interface Medium extends Omit<config.Medium, "timing"> {
  bytes: number;
  description: string;
  errors?: MediumErrors[];
  timing?: { preset: string; [parameter: string]: string };
}

/** Requests to what a medium lies on that failed for one reason. */
export interface MediumErrors {
  cause: string;
  count: number;
  current: boolean;
  os_error?: string;
}

export interface Namespace extends config.Namespace {
  blocks: number;
  subsystem?: string;
  nsid?: number;
  controllers: string[];
  made_by_host: boolean;
}

export interface Tenant extends config.Tenant {
  commands: number;
  bytes: number;
  capped: number;
  held: number;
  at_media: number;
}

export interface ByDirection {
  read: number;
  write: number;
}

/** The largest latency of a bucket in nanoseconds, and how many commands it has. */
export type Bucket = readonly [number, number];

export interface Latency {
  operation: string;
  count: number;
  sum_ns: number;
  buckets: Bucket[];
}

export interface Queue {
  queue: number;
  reactor: number;
  commands: number;
  errors: number;
  interrupts: number;
  interrupts_spared: number;
  rests: number;
  in_flight?: number;
}

/** Protocol of hosts with controllers of their own. */
export type Protocol = "nvme-tcp" | "nbd" | "vhost-user-blk" | "ublk";

/** Host over NVMe/TCP, NBD client, vhost-user-blk front end, or block device of the server's machine. */
export interface Association {
  protocol: Protocol;
  /** As the host reports it; only over NVMe/TCP. */
  nqn?: string;
  /** Of an NBD client, a vhost-user-blk front end or a block device: the name of a namespace. */
  export?: string;
  /** Absent on a UNIX socket, and for a block device. */
  address?: string;
  cntlid: number;
  /** Through TLS. */
  tls: boolean;
  io_queues: number;
  keep_alive_ms: number;
  connected_ms: number;
}

export interface Controller extends config.Controller {
  attached: boolean;
  /** What hosts see; absent where the controller is not served. */
  identity?: { serial: string; subnqn: string };
  /** Process of the host, where the system reports it. */
  host?: { process: number; command?: string };
  /** Hosts over NVMe/TCP, NBD, vhost-user-blk or ublk, in order of arrival. */
  hosts?: Association[];
  /** Path of the block device, once Linux has made it; only over ublk. */
  disk?: string;
  /** State of the block device, in words; only over ublk. */
  device?: string;
  cntlid?: number;
  doorbell_messages: number;
  placement: { queue: number; reactor: number }[];
  commands: ByDirection;
  bytes: ByDirection;
  media_errors: number;
  completion_queues: Queue[];
  latency: Latency[];
  stages: { stage: string; sum_ns: number }[];
  errors_by_status: { status: string; count: number }[];
}

/** `GET /v1/controllers/{name}/queues`. */
export interface Inspector {
  time_ns: number;
  doorbells: string;
  stuck_after_ns: number;
  admin?: CompletionQueue;
  queues: CompletionQueue[];
  /** Up to 16 hosts over NVMe/TCP, NBD, vhost-user-blk or ublk, of a controller whose doorbells are `none`. */
  hosts?: { cntlid: number; nqn?: string; export?: string; admin?: CompletionQueue; queues: CompletionQueue[] }[];
  hosts_left_out?: number;
}

export interface CompletionQueue {
  queue: number;
  reactor: number;
  moving?: boolean;
  vector?: number;
  size?: number;
  head?: number;
  tail?: number;
  phase?: boolean;
  posted?: number;
  reserved?: number;
  full?: boolean;
  doorbell?: number;
  shadow?: number;
  event_idx?: number;
  in_flight: number;
  submission_queues: SubmissionQueue[];
}

export interface SubmissionQueue {
  queue: number;
  size: number;
  head: number;
  tail: number;
  doorbell: number;
  shadow?: number;
  event_idx?: number;
  priority?: string;
  frozen?: string;
  waiting: number;
  in_flight: number;
  commands: QueuedCommand[];
  left_out: number;
}

export interface QueuedCommand {
  queue: number;
  cid: number;
  opcode: number;
  command: string;
  nsid: number;
  lba?: number;
  bytes?: number;
  fua: boolean;
  at: string;
  age_ns?: number;
  stuck: boolean;
}

/** `GET /v1/media/{name}/timing`. */
export interface Timing {
  preset: string;
  kind: string;
  parameters: Parameter[];
}

export interface Parameter {
  name: string;
  group: string;
  value: string;
  raw: number;
  unit: string;
  range: string;
  words?: string[];
  applies: "live" | "reset" | "fixed";
  description: string;
}

/** `GET /v1/media/{name}/map`. Columns of `cells` have an entry for each cell. */
export interface MediumMap {
  name: string;
  bytes: number;
  time_ns: number;
  namespaces: { name: string; start_bytes: number; bytes: number; lba_size?: number }[];
  model?: Model;
  flash?: FlashMap;
  zones?: ZoneMap;
  pairs?: {
    pairs: number;
    most_pairs: number;
    key_bytes: number;
    value_bytes: number;
    used_bytes: number;
    free_bytes: number;
  };
}

export interface Model {
  kind: string;
  stalls: { count: number; time_ns: number };
  servers: { server: string; count: number }[];
  busy: { server: string; work: string; operations: number; busy_ns: number }[];
  buffer?: { bytes: number; used_bytes: number };
  flash?: {
    host_pages: number;
    collected_pages: number;
    collections: { foreground: number; background: number };
    erased_lines: number;
    lines: { free: number; open: number; full: number; all: number; fewest_free: number };
    wear: { least: number; mean: number; most: number };
    valid_pages: number;
    unmapped_reads: number;
  };
}

export interface FlashMap {
  geometry: {
    partitions: number;
    channels: number;
    dies: number;
    pages_per_line: number;
    page_bytes: number;
    lines_per_partition: number;
    logical_pages: number;
  };
  collect_below: number;
  lines_per_cell: number;
  full_lines_by_valid: number[];
  partitions: FlashPartition[];
}

export interface FlashPartition {
  free_lines: number;
  full_lines: number;
  open_lines: { writer: string; line: number; taken_pages: number }[];
  host_pages: number;
  collected_pages: number;
  erased_lines: number;
  cells: {
    free: number[];
    open: number[];
    full: number[];
    valid_pages: number[];
    erases: number[];
    least_erases: number[];
    most_erases: number[];
  };
}

export interface ZoneMap {
  zones: number;
  zone_bytes: number;
  capacity_bytes: number;
  open: number;
  max_open: number;
  active: number;
  max_active: number;
  states: Record<string, number>;
  zones_per_cell: number;
  cells: {
    empty: number[];
    open: number[];
    closed: number[];
    full: number[];
    lost: number[];
    written_bytes: number[];
  };
}

/** An event of `GET /v1/events`. */
export interface Happening {
  id: number;
  time_ns: number;
  event: string;
  kind: string;
  name: string;
}

/** What `GET /v1/events` says in place of events that were gone before they could be read, before it ends. */
export interface Lost {
  lost: number;
}

/** Problem details (RFC 9457). */
export interface ProblemDetails {
  type?: string;
  status: number;
  title: string;
  detail: string;
}
