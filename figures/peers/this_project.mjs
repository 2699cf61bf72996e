// This project on its embedded DynamoDB and queue: the scenario `wide` of the benchmarks, which is the same workload.
//
// The benchmark measures the processor time and checks the runs itself.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..", "..");
const bench = ["--profile", "fast", "-p", "figures", "--", "bench", "--scenario", "wide", "--json"];
const { error, stdout } = spawnSync("cargo", ["run", "--quiet", ...bench], {
  cwd: root,
  encoding: "utf8",
  stdio: ["ignore", "pipe", "inherit"],
});
const isMissing = error?.code === "ENOENT";
// The benchmark has printed its error.
if (!isMissing && stdout === "") process.exit(1);
console.log(JSON.stringify(isMissing ? { notRun: "cargo is not installed: https://rustup.rs" } : figures()));

function figures() {
  const { times, per_delivery } = JSON.parse(stdout);
  const [{ verdict }] = per_delivery;
  const mistakes = /(\d+) out of order, (\d+) overlaps, (\d+) lost, (\d+) repeated/.exec(verdict);
  if (!mistakes && verdict !== "in order") throw new Error(`unknown verdict: ${verdict}`);
  const [inversions, overlaps, lost, repeated] = mistakes ? mistakes.slice(1).map(Number) : [0, 0, 0, 0];
  const [, version] = /^version = "(.+)"$/m.exec(readFileSync(join(root, "Cargo.toml"), "utf8"));
  const [, engine] = /name = "dynoxide-rs"\nversion = "(.+)"/.exec(readFileSync(join(root, "Cargo.lock"), "utf8"));
  return {
    version,
    engine: `dynoxide ${engine} and a queue`,
    wallMs: times[0].wall_ms,
    programMs: times[0].cpu_ms_each,
    engineMs: times[0].engines_cpu_ms_each,
    atOnce: null,
    inversions,
    overlaps,
    lost,
    repeated,
  };
}
