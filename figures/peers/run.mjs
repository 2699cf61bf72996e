// Runs one workload through this project and through other systems, by turns, and prints one table of medians.
//
//   npm ci --prefix figures/peers && node figures/peers/run.mjs
//
// --runs N       the number of runs of each system, 3 without the option
// --only NAME    only this system, like `groupmq`; repeat the option for several
// --ungrouped    gives the other systems each event in a separate group; the table must then show mistakes
import { spawnSync } from "node:child_process";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { EVENTS } from "./workload.mjs";

const SYSTEMS = {
  this_project: "this project",
  restate: "Restate",
  graphile_worker: "Graphile Worker",
  groupmq: "groupmq",
};
const MISTAKES = ["inversions", "overlaps", "lost", "repeated"];

const { values: options } = parseArgs({
  options: {
    runs: { type: "string", default: "3" },
    only: { type: "string", multiple: true, default: Object.keys(SYSTEMS) },
    ungrouped: { type: "boolean", default: false },
  },
});
for (const name of options.only) {
  if (!(name in SYSTEMS)) fail(`there is no system ${name}; there are ${Object.keys(SYSTEMS).join(", ")}`);
}
const runs = Number(options.runs);
if (!(Number.isInteger(runs) && runs > 0)) fail(`--runs is ${options.runs}, but must be a number from 1`);
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  fail(`Graphile Worker needs Node 22.18 or newer; this is ${process.version}`);
}

const names = options.only.filter((name) => !(options.ungrouped && name === "this_project"));
const measured = new Map(names.map((name) => [name, []]));
const load = loadavg()[0];
for (let run = 1; run <= runs; run += 1) {
  for (const name of names) {
    console.error(`Running ${SYSTEMS[name]}, ${run} of ${runs} …`);
    measured.get(name).push(runOnce(name));
  }
}
console.log(table());
console.log(`\nMedians of ${runs} runs by turns, Node ${process.versions.node}.`);
console.log(`The load was ${load.toFixed(1)} before the first run, on ${availableParallelism()} processors.`);
process.exit([...measured.values()].flat().some((run) => MISTAKES.some((mistake) => run[mistake] > 0)) ? 1 : 0);

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(2);
}

/** Runs a system in a separate process. */
function runOnce(name) {
  const program = [join(import.meta.dirname, `${name}.mjs`), ...(options.ungrouped ? ["--ungrouped"] : [])];
  const { status, stdout } = spawnSync(process.execPath, program, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) fail(`${SYSTEMS[name]} failed`);
  return JSON.parse(stdout);
}

function table() {
  const figures = ["wall ms", "range", "events/s", "program ms", "engine ms", "at once"];
  const rows = [["system", "version", "engine", ...figures, ...MISTAKES]];
  const notRun = [];
  for (const [name, runs] of measured) {
    const reason = runs.find((run) => run.notRun)?.notRun;
    if (reason) {
      notRun.push(`${SYSTEMS[name]} not run: ${reason}`);
      continue;
    }
    const sorted = (figure) => runs.map((run) => run[figure]).sort((a, b) => a - b);
    const median = (figure) => sorted(figure)[Math.floor(runs.length / 2)];
    const wall = median("wallMs");
    const [fastest, slowest] = [sorted("wallMs").at(0), sorted("wallMs").at(-1)];
    rows.push([
      SYSTEMS[name],
      runs[0].version,
      runs[0].engine,
      wall.toFixed(0),
      `${fastest.toFixed(0)}–${slowest.toFixed(0)}`,
      ((EVENTS / wall) * 1e3).toFixed(0),
      median("programMs").toFixed(2),
      median("engineMs")?.toFixed(2) ?? "–",
      median("atOnce") ?? "–",
      // A median would hide a mistake.
      ...MISTAKES.map((mistake) => runs.reduce((sum, run) => sum + run[mistake], 0)),
    ]);
  }
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => String(row[column]).length)));
  const pad = (cell, column) =>
    column < 3 ? String(cell).padEnd(widths[column]) : String(cell).padStart(widths[column]);
  return [...rows.map((row) => row.map(pad).join("  ")), ...notRun].join("\n");
}
