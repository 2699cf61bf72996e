// What all peers share: the workload, the checker, the engines' processes and the processor time.
//
// 200 senders, one for each order, send ten events each, one after the other. So the events of different orders are
// interleaved, and those of one order are sent in sequence. A round that is not measured goes first: it opens the
// connections and lets V8 compile.
import { spawn } from "node:child_process";
import { chownSync, closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const AT_ONCE = 32;
export const EVENTS = 2000;
const HANDLER_MS = 5;
const LONGEST_MS = 120_000;
const CLOCK_TICK_MS = 10;
const NOBODY = 65_534;

/**
 * Gives each event a separate group, to show that the checker notices mistakes. There are fewer orders then, because
 * two events of one order rarely meet among 200 orders.
 */
const IS_UNGROUPED = process.argv.includes("--ungrouped");
const ORDERS = IS_UNGROUPED ? 8 : 200;

/**
 * Counts the mistakes in `runs`, which are in the sequence of their starts.
 *
 * An inversion starts after a later event of its order has started. An overlap starts before another run of its order
 * has ended.
 */
function check(runs, events) {
  const orders = new Map();
  const seen = new Set();
  let [inversions, overlaps] = [0, 0];
  for (const { order, number, start, end = Infinity } of runs) {
    const before = orders.get(order) ?? { number: -1, end: -Infinity };
    if (number < before.number) inversions += 1;
    if (start < before.end) overlaps += 1;
    orders.set(order, { number: Math.max(number, before.number), end: Math.max(end, before.end) });
    seen.add(`${order} ${number}`);
  }
  return { inversions, overlaps, lost: events - seen.size, repeated: runs.length - seen.size };
}

/** One pass of the workload. */
class Round {
  runs = [];
  atOnce = 0;
  #running = 0;
  #ended = new Set();
  #allEnded = Promise.withResolvers();

  async handle({ order, number }) {
    const run = { order, number, start: performance.now() };
    this.runs.push(run);
    this.#running += 1;
    this.atOnce = Math.max(this.atOnce, this.#running);
    await sleep(HANDLER_MS);
    this.#running -= 1;
    run.end = performance.now();
    this.#ended.add(`${order} ${number}`);
    if (this.#ended.size === EVENTS) this.#allEnded.resolve();
  }

  /** Sends all events, and waits until each has been handled, or for two minutes. */
  async run(name, send) {
    const sender = async (order) => {
      for (let number = 0; number < EVENTS / ORDERS; number += 1) {
        const group = IS_UNGROUPED ? `${order}-${number}` : order;
        await send(group, { order, number });
      }
    };
    const senders = Array.from({ length: ORDERS }, (_, order) => sender(`${name}-${order}`));
    const giveUp = new AbortController();
    const longest = sleep(LONGEST_MS, undefined, { signal: giveUp.signal }).catch(() => {});
    await Promise.race([Promise.all([...senders, this.#allEnded.promise]), longest]);
    giveUp.abort();
  }
}

/**
 * Measures a peer and prints the figures as JSON.
 *
 * `start` gets the `handle` of each event, the temporary `folder`, and `spawnEngine`, which starts a program.
 * It returns the peer's `version`, the `engine`'s name and version, `send(group, event)` and `stop()`.
 */
export async function measure(start) {
  // No engine waits for a disk, because the embedded DynamoDB of this project is in memory.
  const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "peers-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  // The engines get the terminal's signal as well.
  process.once("SIGINT", () => process.exit(130));
  const engines = [];
  let round = new Round();
  try {
    const { version, engine, send, stop } = await start({
      folder,
      handle: (event) => round.handle(event),
      spawnEngine: (...command) => {
        const engine = spawnEngine(folder, ...command);
        engines.push(engine);
        return engine;
      },
    });
    await round.run("warm-up", send);
    round = new Round();
    const cpu = { program: process.cpuUsage(), engines: treeCpu(engines) };
    const began = performance.now();
    await round.run("order", send);
    const program = process.cpuUsage(cpu.program);
    const enginesMs = treeCpu(engines) - cpu.engines;
    const wallMs = Math.max(...round.runs.map((run) => run.end ?? began)) - began;
    await stop();
    const figures = {
      version,
      engine,
      wallMs,
      programMs: (program.user + program.system) / 1e3 / EVENTS,
      engineMs: enginesMs / EVENTS,
      atOnce: round.atOnce,
      ...check(round.runs, EVENTS),
    };
    console.log(JSON.stringify(figures));
  } catch (error) {
    if (!(error instanceof NotInstalled)) throw error;
    console.log(JSON.stringify({ notRun: error.message }));
  } finally {
    await Promise.all(engines.map(stopEngine));
  }
  process.exit();
}

export class NotInstalled extends Error {}

/** Returns the path of the first of `programs` that is installed, on `PATH` or in `folders`. */
export function installed(programs, folders, remedy) {
  for (const program of programs) {
    for (const folder of [...process.env.PATH.split(delimiter), ...folders]) {
      if (existsSync(join(folder, program))) return join(folder, program);
    }
  }
  throw new NotInstalled(`${programs.join(" or ")} is not installed: ${remedy}`);
}

/** Starts a program of an engine. As root, it can run as `nobody`, because Postgres refuses to run as root. */
function spawnEngine(folder, program, args, { env = {}, isUnprivileged = false } = {}) {
  const log = openSync(join(folder, "log"), "a");
  const user = isUnprivileged && process.getuid() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  if (user.uid) chownSync(folder, user.uid, user.gid);
  const options = { cwd: folder, env: { ...process.env, ...env }, stdio: ["ignore", log, log], ...user };
  const child = spawn(program, args, options);
  closeSync(log);
  return child;
}

async function stopEngine(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGINT");
  const giveUp = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(giveUp);
}

/**
 * Returns the milliseconds of processor time that the engines' processes and their children have used, including ended
 * ones. It is missing on systems without `/proc`.
 */
function treeCpu(engines) {
  if (!existsSync("/proc/self/stat")) return NaN;
  const children = new Map();
  const cpu = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number)) {
    try {
      // The fields after the program's name, from the third: proc_pid_stat(5).
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ").map(Number);
      children.set(stat[1], [...(children.get(stat[1]) ?? []), pid]);
      cpu.set(pid, stat[11] + stat[12] + stat[13] + stat[14]);
    } catch {
      // It has ended, and its parent has its time.
    }
  }
  const ofTree = (pid) => (children.get(pid) ?? []).reduce((sum, child) => sum + ofTree(child), cpu.get(pid) ?? 0);
  return engines.reduce((sum, { pid }) => sum + ofTree(pid), 0) * CLOCK_TICK_MS;
}

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Repeats `attempt` until it succeeds. */
export async function untilReady(attempt) {
  for (const deadline = performance.now() + 60_000; ; await sleep(50)) {
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() > deadline) throw error;
    }
  }
}

/** Returns the version that `package-lock.json` pins. */
export function packageVersion(name) {
  const lock = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url)));
  return lock.packages[`node_modules/${name}`].version;
}
