// Receives what the handler `forward` posts. Node's standard library only.
//
//     SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080 \
//       node --experimental-strip-types receiver.ts        (Node 22.6 or newer)
//
// Four things make a receiver right; each is a few lines below:
//
// 1. The signature is checked over the bytes as they came, in constant time,
//    and its time is at most five minutes away.
// 2. A fencing token older than the newest seen of its entity is refused. It
//    comes from a worker that was taken for dead and replaced while its request
//    was on its way; what it says must not be applied on top of what came after
//    it. The answer is 409 and not 200: nobody waits for it any more if the
//    token really is old, and if this memory should be wrong the delivery is
//    tried again and then set aside where a person sees it, instead of being
//    believed applied.
// 3. A `webhook-id` is applied once. An answer can be lost, and then it comes again.
// 4. All of that is one transaction with the effect itself. Here it is one run of
//    synchronous code over two maps; with a database, put the statements of
//    `Deliveries.receive` and your own into one transaction.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

const TOLERANCE = 300; // seconds
const LARGEST_BODY = 13 * 1024 * 1024; // a delivery has at most 6 MiB; as JSON, in a list, it can be twice as long
const GROUP = "group:";

interface Delivery {
  id: string;
  deliveryId: string;
  source: string;
  topic: string;
  entityKey: string;
  sequence: bigint;
  fencingToken: bigint;
  attempt: number;
  age: string;
  body: Buffer;
}

/** Answered with another status than 2xx. */
class Refused extends Error {
  status: number;
  retryAfter: number | undefined;

  constructor(status: number, reason: string, retryAfter?: number) {
    super(reason);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// ---- verify ----------------------------------------------------------------

function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name];
  if (typeof value !== "string") throw new Refused(400, `there is no ${name}`);
  return value;
}

/** Throws `Refused` unless one of `secrets` signed `body` just now. */
function verify(secrets: string[], headers: IncomingHttpHeaders, body: Buffer, now: number): void {
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  if (!/^[0-9]+$/.test(timestamp)) throw new Refused(401, "the webhook-timestamp cannot be read");
  const claimed = header(headers, "webhook-signature")
    .split(" ")
    .filter((entry) => entry.startsWith("v1,"))
    .map((entry) => Buffer.from(entry.slice("v1,".length), "base64"));
  let matches = 0;
  for (const secret of secrets) {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
    for (const signature of claimed) {
      // No `||`, which would stop at the first match and tell by its time.
      matches |= Number(signature.length === expected.length && timingSafeEqual(signature, expected));
    }
  }
  if (matches === 0) throw new Refused(401, "no known secret makes this signature");
  if (Math.abs(now - Number(timestamp)) > TOLERANCE) {
    throw new Refused(401, "signed too long ago, or in the future");
  }
}

// ---- apply, in order and once ----------------------------------------------

class Deliveries {
  newest = new Map<string, bigint>();
  applied = new Set<string>();

  /** Applies each that was not; throws `Refused` if their token is stale. All are of one entity. */
  receive(deliveries: Delivery[]): string[] {
    const { entityKey, fencingToken } = deliveries[0];
    const newest = this.newest.get(entityKey);
    if (newest !== undefined && fencingToken < newest) {
      throw new Refused(409, `token ${fencingToken} is older than ${newest}`);
    }
    this.newest.set(entityKey, fencingToken);
    const due = deliveries.filter((delivery) => !this.applied.has(delivery.id));
    const outcomes = deliveries.map((delivery) => (due.includes(delivery) ? "applied" : "repeated"));
    // If one fails, no id stays.
    due.forEach(apply);
    // Ids older than the serializer's RETENTION_DAYS can be forgotten.
    due.forEach((delivery) => this.applied.add(delivery.id));
    return outcomes;
  }
}

/**
 * Yours. What cannot be in the transaction, such as a mail, happens at least once:
 * pass `delivery.id` on as an idempotency key. Throw `new Refused(410, …)` for what
 * will never be wanted, `new Refused(503, …, 30)` for not now; any other error is a
 * 500 and is tried again.
 */
function apply(delivery: Delivery): void {
  if (delivery.topic === "app/uninstalled") throw new Refused(410, "nobody here wants to know");
  JSON.parse(delivery.body.toString("utf8"));
}

// ---- HTTP ------------------------------------------------------------------

async function read(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > LARGEST_BODY) throw new Refused(413, "the body is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The deliveries of a request: one, told by its headers, or those of a list. */
function sent(headers: IncomingHttpHeaders, body: Buffer): Delivery[] {
  // The id is signed. The content type of a delivery is its sender's, who could write anything.
  if (header(headers, "webhook-id").startsWith(GROUP)) {
    const event = JSON.parse(body.toString("utf8"));
    return event.deliveries.map((one: any) => ({
      id: one.id,
      deliveryId: one.delivery_id,
      source: event.source,
      topic: one.topic,
      entityKey: event.entity_key,
      sequence: BigInt(one.sequence),
      fencingToken: BigInt(event.fencing_token),
      attempt: one.attempt,
      age: one.age,
      body: Buffer.from(one.body, one.body_is_base64 ? "base64" : "utf8"),
    }));
  }
  const told = (name: string) => decodeURIComponent(header(headers, `serializer-${name}`));
  const one = {
    id: header(headers, "webhook-id"),
    deliveryId: told("delivery-id"),
    source: told("source"),
    topic: told("topic"),
    entityKey: told("entity-key"),
    sequence: BigInt(told("sequence")),
    fencingToken: BigInt(told("fencing-token")),
    attempt: Number(told("attempt")),
    age: told("age"),
    body,
  };
  return [one];
}

async function receive(secrets: string[], deliveries: Deliveries, request: IncomingMessage): Promise<string> {
  if (request.method !== "POST") throw new Refused(405, "deliveries are posted");
  const body = await read(request);
  verify(secrets, request.headers, body, Date.now() / 1000);
  const all = sent(request.headers, body);
  const outcomes = deliveries.receive(all);
  all.forEach((delivery, place) => {
    console.log(
      JSON.stringify({
        outcome: outcomes[place],
        id: delivery.id,
        delivery_id: delivery.deliveryId,
        source: delivery.source,
        topic: delivery.topic,
        entity_key: delivery.entityKey,
        sequence: Number(delivery.sequence),
        fencing_token: Number(delivery.fencingToken),
        attempt: delivery.attempt,
        age: delivery.age,
      }),
    );
  });
  return outcomes.join(", ");
}

// Several, with a space between them, while a secret is rolled.
const secrets = (process.env.SECRET ?? "").split(" ").filter((secret) => secret !== "");
if (secrets.length === 0) throw new Error("SECRET is not set");
const deliveries = new Deliveries();

const server = createServer((request: IncomingMessage, response: ServerResponse) => {
  receive(secrets, deliveries, request).then(
    (outcome) => response.writeHead(200).end(outcome),
    (error: unknown) => {
      const refused = error instanceof Refused ? error : new Refused(500, "it failed");
      if (refused.retryAfter !== undefined) response.setHeader("retry-after", refused.retryAfter);
      if (!request.complete) response.setHeader("connection", "close");
      response.writeHead(refused.status).end(refused.message);
    },
  );
});
server.listen(Number(process.env.PORT ?? "8080"), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
});
