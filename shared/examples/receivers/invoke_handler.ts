// A Lambda function that the handler `invoke` calls. What it answers is written with the delivery.
//
// On Lambda, its handler is `invoke_handler.handler`, once it is JavaScript. It needs no packages and no rights:
//
//     npx esbuild invoke_handler.ts --bundle --platform=node --format=esm --outfile=invoke_handler.mjs
//
// TOTALS_TABLE names a table whose partition key is the string `order`; the template's
// parameter `CommitTableArns` has the table's ARN. On your own machine it stands in for
// Lambda itself, with the table of `serializer local --env-file .env.local` (Node 22.6 or newer):
//
//     (set -a; . ./.env.local; PORT=3001 node --experimental-strip-types invoke_handler.ts)
//
// The worker writes `commit` in the transaction that settles the deliveries, under its
// fencing token. So each delivery is counted once, although the function remembers neither
// ids nor tokens: if an answer is lost, nothing was written, and the deliveries come again.

import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Answer, Deliveries, Delivery } from "./invoke_types.ts";

const TABLE = process.env.TOTALS_TABLE;

/** What Lambda calls. Whatever it throws is tried again. */
export async function handler(event: Deliveries): Promise<Answer> {
  const { source, entity_key, fencing_token, deliveries } = event;
  if (deliveries.some((delivery) => delivery.topic === "app/uninstalled")) {
    return { outcome: "reject", error: "nobody here wants to know" };
  }
  const order = Object.assign({}, ...deliveries.map(knownFrom));
  for (const { id, delivery_id, topic, sequence, attempt, age } of deliveries) {
    const line = { outcome: "done", id, delivery_id, source, topic, entity_key, sequence, fencing_token, attempt, age };
    console.log(JSON.stringify(line));
  }
  return { outcome: "done", commit: [{ Update: update(entity_key, deliveries.length, order) }] };
}

/**
 * Yours: what a delivery says about its order. What DynamoDB cannot write, such as a mail,
 * happens at least once: pass `delivery.id` on as an idempotency key.
 */
function knownFrom(delivery: Delivery): Record<string, string> {
  const body = JSON.parse(Buffer.from(delivery.body, delivery.body_is_base64 ? "base64" : "utf8").toString("utf8"));
  // No provider keeps the sequence in which things happened.
  if (delivery.age === "older") return {};
  return { topic: delivery.topic, ...(body.total_price ? { total: String(body.total_price) } : {}) };
}

/** Counts the deliveries, and stores what is known of the order. */
function update(order: string, count: number, known: Record<string, string>): object {
  const names = Object.keys(known);
  const set = names.map((name) => `#${name} = :${name}`).join(", ");
  return {
    TableName: TABLE,
    Key: { order: { S: order } },
    UpdateExpression: `ADD deliveries :count${set && ` SET ${set}`}`,
    ExpressionAttributeValues: {
      ":count": { N: String(count) },
      ...Object.fromEntries(names.map((name) => [`:${name}`, { S: known[name] }])),
    },
    // DynamoDB refuses an empty map.
    ...(set && { ExpressionAttributeNames: Object.fromEntries(names.map((name) => [`#${name}`, name])) }),
  };
}

// ---- on your own machine: what stands in for Lambda ------------------------

async function read(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

async function invoked(request: IncomingMessage, response: ServerResponse): Promise<void> {
  response.setHeader("content-type", "application/json");
  try {
    response.end(JSON.stringify(await handler(JSON.parse(await read(request)) as Deliveries)));
  } catch (error) {
    response.setHeader("x-amz-function-error", "Unhandled");
    const { name, message } = error as Error;
    response.end(JSON.stringify({ errorType: name, errorMessage: message }));
  }
}

if (process.env.PORT !== undefined) {
  const server = createServer(invoked);
  server.listen(Number(process.env.PORT), "127.0.0.1", () => {
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  });
}
