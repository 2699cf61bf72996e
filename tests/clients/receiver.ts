// The package's receivers for `tests/forward`, behind Express or Hono, with ids and tokens in memory or in Postgres.

import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import pg from "pg";
import { applyOnce, memory, postgres, POSTGRES_TABLES, Refused } from "webhook-serializer/receiver";
import type { Applied, Delivery } from "webhook-serializer/receiver";

const options = {
  secret: process.env.SECRET!.split(" "),
  onApplied: (delivery: Delivery, outcome: Applied) =>
    console.log(
      JSON.stringify({
        outcome,
        delivery_id: delivery.deliveryId,
        source: delivery.source,
        topic: delivery.topic,
        entity_key: delivery.entityKey,
        fencing_token: Number(delivery.fencingToken),
        age: delivery.age,
      }),
    ),
};

function wanted({ topic, body }: Delivery) {
  if (topic === "app/uninstalled") throw new Refused(410, "nobody here wants to know");
  JSON.parse(body.toString("utf8"));
}

const ORDERS = `CREATE TABLE IF NOT EXISTS orders (entity_key text PRIMARY KEY, last_topic text NOT NULL,
  last_body jsonb NOT NULL, deliveries integer NOT NULL)`;

async function onPostgres(connectionString: string) {
  const pool = new pg.Pool({ connectionString });
  await pool.query(POSTGRES_TABLES + ORDERS);
  return applyOnce({ ...options, store: postgres(pool) }, async (delivery, database) => {
    wanted(delivery);
    // The error aborts the transaction, whether it is caught or not.
    if (delivery.topic === "orders/caught") return void (await database.query("SELECT 1/0").catch(() => {}));
    await database.query(
      `INSERT INTO orders VALUES ($1, $2, $3, 1) ON CONFLICT (entity_key) DO UPDATE SET last_topic = excluded.last_topic,
       last_body = excluded.last_body, deliveries = orders.deliveries + 1`,
      [delivery.entityKey, delivery.topic, delivery.body.toString("utf8")],
    );
  });
}

const database = process.env.DATABASE_URL;
const receiver = database
  ? await onPostgres(database)
  : applyOnce({ ...options, store: memory() }, async (delivery) => wanted(delivery));

const listening = ({ port }: AddressInfo) => console.log(`http://127.0.0.1:${port}/`);
if (process.env.FRAMEWORK === "hono") {
  const app = new Hono();
  app.post("/", (context) => receiver.fetch(context.req.raw));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, listening);
} else {
  const app = express();
  app.post("/parsed", express.json({ type: () => true }), receiver.node);
  app.post("/", receiver.node);
  const server = app.listen(0, "127.0.0.1", () => listening(server.address() as AddressInfo));
}
