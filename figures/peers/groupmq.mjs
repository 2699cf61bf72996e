// groupmq on a new Redis server: a group for each order.
//
// Redis has its default settings, so it does not write each event to its log before it answers.
import { execFileSync } from "node:child_process";
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";
import { AT_ONCE, freePort, installed, measure, packageVersion, untilReady } from "./workload.mjs";

await measure(async ({ folder, handle, spawnEngine }) => {
  const server = installed(["redis-server", "valkey-server"], [], "apt-get install redis-server");
  const port = await freePort();
  spawnEngine(server, ["--bind", "127.0.0.1", "--port", String(port), "--dir", folder]);
  const redis = new Redis({ host: "127.0.0.1", port, maxRetriesPerRequest: null });
  redis.on("error", () => {});
  await untilReady(() => redis.ping());

  const queue = new Queue({ redis, namespace: "orders" });
  const worker = new Worker({ queue, concurrency: AT_ONCE, handler: ({ data }) => handle(data) });
  worker.on("error", (error) => console.error(error));
  worker.run();
  return {
    version: packageVersion("groupmq"),
    engine: engineVersion(server),
    send: (groupId, data) => queue.add({ groupId, data }),
    stop: async () => {
      await worker.close();
      await queue.close();
      redis.disconnect();
    },
  };
});

function engineVersion(server) {
  const text = execFileSync(server, ["--version"], { encoding: "utf8" });
  const [, name, version] = /(Redis|Valkey) server v=(\S+)/.exec(text);
  return `${name} ${version}`;
}
