// The package's receivers for `tests/forward`, behind Express or Hono, with ids and tokens in a store.

import type { AddressInfo } from "node:net";
import { CreateTableCommand, DynamoDBClient, ResourceInUseException } from "@aws-sdk/client-dynamodb";
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import pg from "pg";
import { applyOnce, dynamodb, memory, postgres, POSTGRES_TABLES, Refused } from "webhook-serializer/receiver";
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
    if (delivery.topic === "orders/cut") await database.query("SELECT pg_terminate_backend(pg_backend_pid())");
    await database.query(
      `INSERT INTO orders VALUES ($1, $2, $3, 1) ON CONFLICT (entity_key) DO UPDATE SET last_topic = excluded.last_topic,
       last_body = excluded.last_body, deliveries = orders.deliveries + 1`,
      [delivery.entityKey, delivery.topic, delivery.body.toString("utf8")],
    );
  });
}

async function onDynamoDb(table: string) {
  const create = new CreateTableCommand({
    TableName: table,
    KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
    AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
    BillingMode: "PAY_PER_REQUEST",
  });
  await new DynamoDBClient().send(create).catch((failed) => {
    if (!(failed instanceof ResourceInUseException)) throw failed;
  });
  return applyOnce({ ...options, store: dynamodb(table) }, async (delivery, writes) => {
    wanted(delivery);
    const Update = {
      TableName: "totals",
      Key: { order: { S: delivery.entityKey } },
      UpdateExpression: "SET topic = :topic ADD deliveries :one",
      ExpressionAttributeValues: { ":topic": { S: delivery.topic }, ":one": { N: "1" } },
    };
    writes.push({ Update });
  });
}

function inMemory() {
  return applyOnce({ ...options, store: memory() }, async (delivery) => wanted(delivery));
}

const { DATABASE_URL: database, IDS_TABLE: ids } = process.env;
const receiver = database ? await onPostgres(database) : ids ? await onDynamoDb(ids) : inMemory();

const listening = ({ port }: AddressInfo) => console.log(`http://127.0.0.1:${port}/`);
if (process.env.FRAMEWORK === "hono") {
  const app = new Hono();
  app.post("/", (context) => receiver.fetch(context.req.raw));
  app.use("/read", async (context, next) => {
    await context.req.text();
    await next();
  });
  app.post("/read", (context) => receiver.fetch(context.req.raw));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, listening);
} else {
  const app = express();
  app.post("/read", express.json({ type: () => true }), receiver.node);
  app.post("/", receiver.node);
  const server = app.listen(0, "127.0.0.1", () => listening(server.address() as AddressInfo));
}
