// A Lambda function that the handler `invoke` calls. It keeps its state in DynamoDB.
//
// On Lambda, which brings the AWS SDK, its handler is `invoke_handler.handler`, once it is JavaScript:
//
//     npx esbuild invoke_handler.ts --bundle --platform=node --format=esm \
//       --external:@aws-sdk/* --outfile=invoke_handler.mjs
//
// TOTALS_TABLE names a table whose partition key is the string `order`; its role needs
// dynamodb:UpdateItem and dynamodb:PutItem there. On your own machine it stands in for
// Lambda itself, with the table of `serializer local --env-file .env.local`:
//
//     npm install                                                  (Node 22.6 or newer)
//     (set -a; . ./.env.local; PORT=3001 node --experimental-strip-types invoke_handler.ts)
//
// Each order has a row: what is known of it, the newest fencing token, and the ids that
// were applied. Two writes make it right:
//
// 1. `claim` stores the token, unless the row has a newer one, and returns the row. From
//    then on nothing lands under an older token: not that of a worker that was taken for
//    dead, nor that of a call whose time was up and that still runs.
// 2. `save` stores the order and the new ids together, only while the token is its own.
//
// A lost reply is recognised. If that of a write is lost, the SDK repeats it: both
// conditions hold for the token that the first try left there, and the same values are
// written. If the function's own answer is lost, the deliveries come again with a newer
// token, and the row has their ids.

import { ConditionalCheckFailedException, DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { DynamoDBDocumentClient, PutCommand, UpdateCommand } from "@aws-sdk/lib-dynamodb";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Answer, Deliveries, Delivery } from "./invoke_types.ts";

const DYNAMODB = DynamoDBDocumentClient.from(new DynamoDBClient());
const TABLE = process.env.TOTALS_TABLE;
const KEPT = 30 * 86_400; // seconds; no less than the serializer's RETENTION_DAYS

interface Row {
  order: string;
  fencing_token: number;
  /** When each id was applied, in seconds. */
  applied: Record<string, number>;
  topic?: string;
  total?: string;
}

/** Never wanted: it is parked. */
class Rejected extends Error {}

/** Not now: tried again, after so many seconds where they are given. */
class Later extends Error {
  after: number | undefined;

  constructor(reason: string, after?: number) {
    super(reason);
    this.after = after;
  }
}

/** What Lambda calls. Whatever else it throws is tried again too. */
export async function handler(event: Deliveries): Promise<Answer> {
  try {
    for (const line of await receive(event)) console.log(JSON.stringify(line));
  } catch (reason) {
    if (reason instanceof Rejected) return { outcome: "reject", error: reason.message };
    if (reason instanceof Later) return { outcome: "retry", after: reason.after ?? null, error: reason.message };
    throw reason;
  }
  return { outcome: "done" };
}

/**
 * Yours: changes the order's row, which has at most 400 KB with its ids. To write other
 * rows with it, make `save` a `TransactWriteCommand`. What cannot be in there, such as a
 * mail, happens at least once: pass `delivery.id` on as an idempotency key.
 */
function apply(row: Row, delivery: Delivery): void {
  if (delivery.topic === "app/uninstalled") throw new Rejected("nobody here wants to know");
  const body = JSON.parse(Buffer.from(delivery.body, delivery.body_is_base64 ? "base64" : "utf8").toString("utf8"));
  // No provider keeps the sequence in which things happened.
  if (delivery.age === "older") return;
  row.topic = delivery.topic;
  if (body.total_price) row.total = String(body.total_price);
}

// ---- in order and once -----------------------------------------------------

/** Applies each delivery that was not, all or none. */
async function receive(event: Deliveries): Promise<object[]> {
  const { source, entity_key, fencing_token } = event;
  const row = await claim(entity_key, fencing_token);
  const lines = event.deliveries.map((delivery) => {
    const outcome = Object.hasOwn(row.applied, delivery.id) ? "repeated" : "applied";
    if (outcome === "applied") {
      apply(row, delivery);
      row.applied[delivery.id] = Math.floor(Date.now() / 1000);
    }
    const { id, delivery_id, topic, sequence, attempt, age } = delivery;
    return { outcome, id, delivery_id, source, topic, entity_key, sequence, fencing_token, attempt, age };
  });
  await save(row, fencing_token);
  return lines;
}

async function claim(order: string, token: number): Promise<Row> {
  const update = new UpdateCommand({
    TableName: TABLE,
    Key: { order },
    UpdateExpression: "SET fencing_token = :token",
    ConditionExpression: "attribute_not_exists(fencing_token) OR fencing_token <= :token",
    ExpressionAttributeValues: { ":token": token },
    ReturnValues: "ALL_NEW",
    ReturnValuesOnConditionCheckFailure: "ALL_OLD",
  });
  try {
    const { Attributes } = await DYNAMODB.send(update);
    return { applied: {}, ...Attributes } as Row;
  } catch (failed) {
    if (!(failed instanceof ConditionalCheckFailedException)) throw failed;
    throw new Later(`token ${token} is older than ${failed.Item?.fencing_token?.N}`);
  }
}

async function save(row: Row, token: number): Promise<void> {
  const oldest = Date.now() / 1000 - KEPT;
  row.applied = Object.fromEntries(Object.entries(row.applied).filter(([, at]) => at > oldest));
  const put = new PutCommand({
    TableName: TABLE,
    Item: row,
    ConditionExpression: "fencing_token = :token",
    ExpressionAttributeValues: { ":token": token },
  });
  try {
    await DYNAMODB.send(put);
  } catch (failed) {
    if (!(failed instanceof ConditionalCheckFailedException)) throw failed;
    throw new Later(`token ${token} was replaced by a newer one`);
  }
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
