// Graphile Worker on a new Postgres server: a job queue for each order, whose jobs run one at a time.
//
// Worker and server have their default settings, except for the number of connections, which follows the advice in
// WorkerOptions.maxPoolSize.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Logger, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { AT_ONCE, freePort, installed, measure, packageVersion, untilReady } from "./workload.mjs";

const DEBIAN = "/usr/lib/postgresql";

await measure(async ({ folder, handle, spawnEngine }) => {
  const debian = existsSync(DEBIAN) ? readdirSync(DEBIAN).map((version) => join(DEBIAN, version, "bin")) : [];
  const programs = ["initdb", "postgres"];
  const [initdb, postgres] = programs.map((name) => installed([name], debian, "apt-get install postgresql"));
  const unprivileged = { isUnprivileged: true };
  const data = join(folder, "data");
  const create = ["--no-sync", "--auth=trust", "--username=peers", "-D", data];
  const [status] = await once(spawnEngine(initdb, create, unprivileged), "exit");
  if (status !== 0) throw new Error("initdb failed");
  const port = await freePort();
  spawnEngine(postgres, ["-D", data, "-h", "127.0.0.1", "-p", String(port), "-k", folder], unprivileged);

  const pgPool = new pg.Pool({ host: "127.0.0.1", port, user: "peers", database: "postgres", max: AT_ONCE + 2 });
  // The server may end a connection that the pool is closing.
  pgPool.on("error", () => {});
  pgPool.on("connect", (client) => client.on("error", () => {}));
  const options = { pgPool, logger: new Logger(() => () => {}) };
  await untilReady(() => runMigrations(options));
  const runner = await run({ ...options, concurrency: AT_ONCE, noHandleSignals: true, taskList: { handle } });
  return {
    version: packageVersion("graphile-worker"),
    engine: `Postgres ${/[\d.]+/.exec(execFileSync(postgres, ["--version"], { encoding: "utf8" }))[0]}`,
    send: (queueName, event) => runner.addJob("handle", event, { queueName }),
    stop: async () => {
      await runner.stop();
      await pgPool.end();
    },
  };
});
