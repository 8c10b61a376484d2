// A real server with drives, and hosts that load them. Everything that is started here ends with the test.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const PROGRAM = process.env["NVMIRAGE_BIN"] ?? "nvmirage";
/** How long the server may take to begin. */
const START_MS = 60_000;

/** What the hosts do: a controller, and the arguments of `nvmirage bench`. */
const LOADS: [string, string[]][] = [
  ["db-primary", ["--rw", "randrw", "--destroy-data", "--reads", "80", "--qd", "8"]],
  ["db-replica", ["--rw", "randread", "--qd", "2", "--bs", "16k"]],
  ["build-ci", ["--rw", "randwrite", "--destroy-data", "--qd", "16", "--bs", "32k"]],
];

function controller(dir: string, name: string, namespace: string, more = ""): string {
  return `[[controller]]\nname = "${name}"\nnamespaces = ["${namespace}"]\nlisten = "vfio-user:${join(dir, name)}.sock"\n${more}\n`;
}

function configuration(dir: string, port: number): string {
  return `
[control]
socket = "unix:${join(dir, "control.sock")}"
tcp = "127.0.0.1:${port}"
token_file = "${join(dir, "token")}"

[[reactor]]
mode = "adaptive"

[[reactor]]
mode = "adaptive"

[[tenant]]
name = "gold"
weight = 300

[[tenant]]
name = "silver"
weight = 100
bandwidth = "64MiB"

[[media]]
name = "optane"
kind = "ram"
size = "256MiB"
[media.timing]
preset = "optane-p4800x"

[[media]]
name = "flash"
kind = "null"
size = "4GiB"
[media.timing]
preset = "samsung-970-pro"

[[media]]
name = "zoned"
kind = "ram"
size = "8GiB"
[media.timing]
preset = "zns-prototype"
[media.zoned]
zone_size = "128MiB"
zone_capacity = "96MiB"
max_active = 14
max_open = 14

[[media]]
name = "many"
kind = "null"
size = "400GiB"

[[namespace]]
name = "ns1"
media = "optane"
range = "0MiB..128MiB"

[[namespace]]
name = "ns2"
media = "optane"
range = "128MiB..256MiB"

[[namespace]]
name = "ns3"
media = "flash"

[[namespace]]
name = "ns4"
media = "zoned"

${controller(dir, "db-primary", "ns1", 'tenant = "gold"\nsample = 4')}
${controller(dir, "db-replica", "ns2", 'tenant = "silver"\nsample = 4')}
${controller(dir, "build-ci", "ns3", "reactor = 1")}
${controller(dir, "log-store", "ns4")}
`;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export class Daemon {
  readonly dir = mkdtempSync(join(tmpdir(), "nvmirage-web-"));
  port = 0;
  log = "";
  private server: ChildProcess | null = null;
  private others: ChildProcess[] = [];
  /** Parts of the configuration beside that of every test. */
  private more = new Map<string, string>();

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get token(): string {
    return readFileSync(join(this.dir, "token"), "utf8").trim();
  }

  async start(): Promise<void> {
    if (this.port === 0) this.port = await freePort();
    const file = this.write();
    const server = spawn(PROGRAM, ["serve", "--config", file, "--stop-at-eof"], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, XDG_STATE_HOME: this.dir, XDG_RUNTIME_DIR: this.dir },
    });
    this.server = server;
    let ready = false;
    server.stdout.on("data", (data: Buffer) => {
      ready ||= data.toString().includes("ready:");
    });
    server.stderr.on("data", (data: Buffer) => {
      this.log = (this.log + data.toString()).slice(-100_000);
    });
    server.on("error", (error) => {
      this.log += String(error);
    });
    const begun = Date.now();
    while (!ready) {
      if (server.exitCode !== null || Date.now() - begun > START_MS) throw new Error(`the server does not begin: ${this.log}`);
      await sleep(20);
    }
  }

  /** Starts the hosts, at a lower priority than the server and the browser: each polls, and there may be only two CPUs. */
  load(): void {
    for (const [name, args] of LOADS) {
      const target = `vfio-user:${join(this.dir, name)}.sock`;
      this.run("nice", ["-n", "10", PROGRAM, "bench", "--target", target, "--time", "3600s", ...args]);
    }
  }

  private run(program: string, args: string[]): ChildProcess {
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, XDG_RUNTIME_DIR: this.dir },
    });
    child.on("error", (error) => {
      this.log += String(error);
    });
    this.others.push(child);
    return child;
  }

  /** `nvmirage dashboard`: the address that it prints. */
  async proxy(): Promise<string> {
    const child = this.run(PROGRAM, ["dashboard", "--control", `unix:${join(this.dir, "control.sock")}`]);
    let text = "";
    child.stdout?.on("data", (data: Buffer) => {
      text += data.toString();
    });
    const begun = Date.now();
    while (!text.includes("\n")) {
      if (child.exitCode !== null || Date.now() - begun > START_MS) throw new Error(`nvmirage dashboard prints nothing: ${text}`);
      await sleep(20);
    }
    return text.trim();
  }

  /** The server dies where it stands. */
  async kill(): Promise<void> {
    await ended(this.server, "SIGKILL");
    this.server = null;
    await this.stopOthers();
  }

  private async stopOthers(): Promise<void> {
    await Promise.all(this.others.map((child) => ended(child, "SIGKILL")));
    this.others = [];
  }

  async stop(): Promise<void> {
    await this.stopOthers();
    await ended(this.server, "SIGTERM");
    if (existsSync(this.dir)) rmSync(this.dir, { recursive: true });
  }

  async ask(method: string, path: string, body?: unknown): Promise<Response> {
    const init: RequestInit = { method, headers: { Authorization: `Bearer ${this.token}` } };
    if (body !== undefined) init.body = JSON.stringify(body);
    return await fetch(this.origin + path, init);
  }

  /** Makes so many further controllers, each with a namespace of its own. */
  async makeMany(count: number): Promise<void> {
    let text = "";
    for (let index = 0; index < count; index += 1) {
      const name = `vm-${String(index + 1).padStart(3, "0")}`;
      text += `[[namespace]]\nname = "${name}"\nmedia = "many"\nrange = "${index}GiB..${index + 1}GiB"\n`;
      text += controller(this.dir, name, name, "queues = 1\nqueue_depth = 16");
    }
    await this.have("controllers", text);
  }

  /** Gives the server this many unused tenants. Each one that is created or deleted is an event. */
  async haveTenants(count: number): Promise<void> {
    const tenants = Array.from({ length: count }, (_, index) => `[[tenant]]\nname = "idle-${index}"\n`);
    await this.have("tenants", tenants.join(""));
  }

  /** Replaces a part of the configuration file, and reloads the file. */
  private async have(part: string, text: string): Promise<void> {
    this.more.set(part, text);
    this.write();
    const response = await this.ask("POST", "/v1/reload");
    if (!response.ok) throw new Error(`the reload failed: ${await response.text()}`);
  }

  /** Writes the configuration file. Its path. */
  private write(): string {
    const file = join(this.dir, "nvmirage.toml");
    writeFileSync(file, configuration(this.dir, this.port) + [...this.more.values()].join("\n"));
    return file;
  }
}

async function ended(child: ChildProcess | null, signal: NodeJS.Signals): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const end = once(child, "exit");
  child.kill(signal);
  const late = setTimeoutKill(child);
  await end;
  clearTimeout(late);
}

function setTimeoutKill(child: ChildProcess): NodeJS.Timeout {
  return setTimeout(() => child.kill("SIGKILL"), 20_000);
}
