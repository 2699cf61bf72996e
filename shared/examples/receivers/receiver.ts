// Receives what the handler `forward` posts, without a package: Node's standard library, ids and tokens in memory.
//
//     SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080 \
//       node --experimental-strip-types receiver.ts        (Node 22.6 or newer)
//
// With the package `webhook-serializer`, `applyOnce` replaces all but `apply`. This file shows what it does, for a port
// to another language: the bytes are verified as they came, a fencing token below the newest of its order is refused,
// and each id is applied once, all in one transaction with the effect. Here it is one run of synchronous code.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

const TOLERANCE = 300; // seconds
const LARGEST_BODY = 13 * 1024 * 1024; // a delivery has at most 6 MiB; as JSON, in a list, it can be twice as long

interface Delivery {
  id: string;
  delivery_id: string;
  source: string;
  topic: string;
  entity_key: string;
  fencing_token: number;
  age: string;
  body: Buffer;
}

/** Answered with this status instead of 2xx: 410 for what will never be wanted, 503 for not now. */
class Refused extends Error {
  status: number;

  constructor(status: number, reason: string) {
    super(reason);
    this.status = status;
  }
}

/** Yours. What cannot be in the transaction, such as a mail, happens at least once. */
function apply(delivery: Delivery): void {
  if (delivery.topic === "app/uninstalled") throw new Refused(410, "nobody here wants to know");
  JSON.parse(delivery.body.toString("utf8"));
}

function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name];
  if (typeof value !== "string") throw new Refused(400, `there is no ${name}`);
  return value;
}

function verify(headers: IncomingHttpHeaders, body: Buffer): void {
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  if (!/^[0-9]+$/.test(timestamp)) throw new Refused(401, "the webhook-timestamp cannot be read");
  const claimed = header(headers, "webhook-signature").split(" ").map((entry) => Buffer.from(entry));
  let matches = 0;
  for (const key of keys) {
    const signature = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest("base64");
    const expected = Buffer.from(`v1,${signature}`);
    for (const one of claimed) {
      // No `||`, which would stop at the first match and show it by its time.
      matches |= Number(one.length === expected.length && timingSafeEqual(one, expected));
    }
  }
  if (matches === 0) throw new Refused(401, "no known secret makes this signature");
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE) {
    throw new Refused(401, "signed too long ago, or in the future");
  }
}

/** Returns one delivery, described by headers, or those of a list. All are of one order. */
function deliveriesOf(headers: IncomingHttpHeaders, body: Buffer): Delivery[] {
  // The id is signed. The content type is the sender's, who could write anything.
  const id = header(headers, "webhook-id");
  if (id.startsWith("group:")) {
    const { deliveries, ...common } = JSON.parse(body.toString("utf8"));
    const bytes = (one: any) => Buffer.from(one.body, one.body_is_base64 ? "base64" : "utf8");
    return deliveries.map((one: any) => ({ ...common, ...one, body: bytes(one) }));
  }
  const text = (name: string) => decodeURIComponent(header(headers, `serializer-${name}`));
  const delivery: Delivery = {
    id,
    delivery_id: text("delivery-id"),
    source: text("source"),
    topic: text("topic"),
    entity_key: text("entity-key"),
    fencing_token: Number(text("fencing-token")),
    age: text("age"),
    body,
  };
  return [delivery];
}

const newest = new Map<string, number>();
// Ids older than the serializer's RETENTION_DAYS can be forgotten.
const applied = new Set<string>();

function receive(deliveries: Delivery[]): string[] {
  const { entity_key, fencing_token } = deliveries[0]!;
  const before = newest.get(entity_key);
  if (before !== undefined && fencing_token < before) {
    // Not 200: should this memory be wrong, the delivery is parked, where a person sees it.
    throw new Refused(409, `token ${fencing_token} is older than ${before}`);
  }
  newest.set(entity_key, fencing_token);
  const due = deliveries.filter(({ id }) => !applied.has(id));
  // If one fails, no id stays.
  due.forEach(apply);
  due.forEach(({ id }) => applied.add(id));
  return deliveries.map((delivery) => (due.includes(delivery) ? "applied" : "repeated"));
}

async function answer(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > LARGEST_BODY) throw new Refused(413, "the body is too large");
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  verify(request.headers, body);
  const deliveries = deliveriesOf(request.headers, body);
  const outcomes = receive(deliveries);
  deliveries.forEach(({ body, ...shown }, number) => {
    console.log(JSON.stringify({ outcome: outcomes[number], ...shown }));
  });
  return outcomes.join(", ");
}

// Several, with a space between them, while a secret is rotated.
const secrets = (process.env.SECRET ?? "").split(" ");
const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
// Anybody can sign with an empty key.
if (keys.some((key) => key.length === 0)) throw new Error("SECRET is not set, or not in base64");
const server = createServer(async (request, response) => {
  const failed = (error: unknown) => (error instanceof Refused ? error : new Refused(500, (error as Error).name));
  const { status, message } = await answer(request).then((message) => ({ status: 200, message }), failed);
  // The rest of a body that is too large is not read.
  if (!request.complete) response.setHeader("connection", "close");
  response.writeHead(status).end(message);
});
server.listen(Number(process.env.PORT ?? "8080"), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
});
