// Configurations of objects, generated from the program: renew it with
// UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage book::

/** Keys of a reactor. */
export interface Reactor {
  budget: number;
  cpu?: number;
  mode: "poll" | "adaptive" | "interrupt";
  spin: string;
}

/** Keys of a medium. */
export interface Medium {
  admin_allow?: string[];
  awupf?: string;
  completions?: number;
  concat?: boolean;
  data_digest?: boolean;
  dhchap_ctrl_key?: string;
  dhchap_key?: string;
  dialect?: "nvme" | "samsung";
  direct?: "auto" | "on" | "off";
  header_digest?: boolean;
  heads?: number;
  hostnqn?: string;
  kind: "null" | "ram" | "file" | "drive" | "keyvalue";
  max_keys?: number;
  name: string;
  nsid?: number;
  path?: string;
  poll_completions?: boolean;
  poll_submissions?: boolean;
  preallocate?: boolean;
  read_only?: boolean;
  register_memory?: boolean;
  size: string;
  state?: string;
  target?: string;
  timing?: { [key: string]: unknown };
  tls_key?: string;
  vendor?: "fetch_add";
  zoned?: { [key: string]: unknown };
}

/** Keys of a namespace. */
export interface Namespace {
  ana_group?: number;
  eui64?: string;
  hosts?: string[];
  lba_size: number;
  media: string;
  name: string;
  nguid?: string;
  partition?: string;
  range?: string;
  tenant?: string;
  weight?: number;
}

/** Keys of a tenant. */
export interface Tenant {
  bandwidth?: string;
  burst: string;
  class: "fair" | "latency";
  goal?: string;
  in_flight?: number;
  iops?: number;
  name: string;
  weight: number;
}

/** Keys of a controller. */
export interface Controller {
  advertise?: string;
  ana?: { [key: string]: "optimized" | "non-optimized" | "inaccessible" | "persistent-loss" | "change" };
  device_id?: number;
  doorbells: "auto" | "mapped" | "unmapped" | "trapped";
  firmware_revision: string;
  fuse?: { [key: string]: unknown };
  intx: boolean;
  listen: string;
  max_transfer: string;
  migration: boolean;
  model_number: string;
  msix: boolean;
  name: string;
  namespaces: string[];
  nbd?: { [key: string]: unknown };
  pool?: string[];
  queue_depth: number;
  queues: number;
  reactor?: number;
  reactors?: number[];
  records: number;
  referrals?: string[];
  sample: number;
  serial?: string;
  socket_mode?: string;
  subnqn?: string;
  subsystem?: string;
  tcp?: { [key: string]: unknown };
  tenant?: string;
  vendor_id?: number;
}
