// Restate on a new server: a virtual object for each order, whose invocations run one at a time.
//
// The server has its default settings. Its limit of concurrent invocations is left out, because it applies to each of
// its 24 partitions (https://github.com/restatedev/restate/pull/5314, read 2026-11-29). The handler journals no steps,
// so it costs Restate no more than the invocation.
import { join } from "node:path";
import * as restate from "@restatedev/restate-sdk";
import * as clients from "@restatedev/restate-sdk-clients";
import { freePort, installed, measure, packageVersion, untilReady } from "./workload.mjs";

await measure(async ({ folder, handle, spawnEngine }) => {
  const bin = join(import.meta.dirname, "node_modules", ".bin");
  const server = installed(["restate-server"], [bin], "npm ci --prefix figures/peers");
  const [ingress, admin, node] = await Promise.all([freePort(), freePort(), freePort()]);
  spawnEngine(server, [], {
    env: {
      RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
      RESTATE_BASE_DIR: join(folder, "data"),
      RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
      RESTATE_DISABLE_TELEMETRY: "true",
      RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
      RESTATE_LISTEN_MODE: "tcp",
    },
  });

  const order = restate.object({ name: "order", handlers: { handle: (_context, event) => handle(event) } });
  const port = await restate.serve({ services: [order], port: 0, logger: () => {} });
  await untilReady(async () => {
    const response = await fetch(`http://127.0.0.1:${admin}/deployments`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ uri: `http://127.0.0.1:${port}` }),
    });
    if (!response.ok) throw new Error(`Restate refused the deployment: ${await response.text()}`);
  });
  const client = clients.connect({ url: `http://127.0.0.1:${ingress}` });
  return {
    version: packageVersion("@restatedev/restate-sdk"),
    engine: `Restate ${packageVersion("@restatedev/restate-server")}`,
    send: (key, event) => client.objectSendClient(order, key).handle(event),
    stop: async () => {},
  };
});
