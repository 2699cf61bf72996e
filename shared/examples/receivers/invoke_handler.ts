// A Lambda function that the handler `invoke` calls. Node's standard library only.
//
// On Lambda its handler is `invoke_handler.handler`. On your own machine it
// stands in for Lambda itself:
//
//     PORT=3001 node --experimental-strip-types invoke_handler.ts        (Node 22.6 or newer)
//
// Three things make it right; each is a few lines below:
//
// 1. A fencing token older than the newest seen of its entity is refused. It
//    comes from a worker that was taken for dead and replaced, or from a call
//    whose time was up and that runs on; it must not be applied on top of what
//    came after it.
// 2. An `id` is applied once. An answer can be lost, and then it comes again.
// 3. Both are one transaction with the effect itself, for all that came
//    together. Here it is one run of synchronous code over two maps, which one
//    process remembers: on Lambda, put the statements of `Store.receive` and your
//    own into one transaction of a database.

import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Answer, Deliveries, Delivery } from "./invoke_types.ts";

/** Never wanted: it is set aside. */
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
    for (const line of store.receive(event)) console.log(JSON.stringify(line));
  } catch (reason) {
    if (reason instanceof Rejected) return { outcome: "reject", error: reason.message };
    if (reason instanceof Later) return { outcome: "retry", after: reason.after ?? null, error: reason.message };
    throw reason;
  }
  return { outcome: "done" };
}

/**
 * Yours. What cannot be in the transaction, such as a mail, happens at least once:
 * pass `delivery.id` on as an idempotency key.
 */
function apply(delivery: Delivery): void {
  if (delivery.topic === "app/uninstalled") throw new Rejected("nobody here wants to know");
  JSON.parse(Buffer.from(delivery.body, delivery.body_is_base64 ? "base64" : "utf8").toString("utf8"));
}

// ---- apply, in order and once ----------------------------------------------

class Store {
  newest = new Map<string, number>();
  applied = new Set<string>();

  /** Applies each delivery that was not, all or none; throws `Later` if their token is stale. */
  receive(event: Deliveries): object[] {
    const newest = this.newest.get(event.entity_key);
    if (newest !== undefined && event.fencing_token < newest) {
      throw new Later(`token ${event.fencing_token} is older than ${newest}`);
    }
    this.newest.set(event.entity_key, event.fencing_token);
    const lines = event.deliveries.map((delivery) => this.line(event, delivery));
    const due = event.deliveries.filter((delivery) => !this.applied.has(delivery.id));
    // If one fails, the token stays seen, and no id does.
    due.forEach(apply);
    // Ids older than the serializer's RETENTION_DAYS can be forgotten.
    due.forEach((delivery) => this.applied.add(delivery.id));
    return lines;
  }

  line({ source, entity_key, fencing_token }: Deliveries, delivery: Delivery): object {
    const outcome = this.applied.has(delivery.id) ? "repeated" : "applied";
    const { id, delivery_id, topic, sequence, attempt, age } = delivery;
    return { outcome, id, delivery_id, source, topic, entity_key, sequence, fencing_token, attempt, age };
  }
}

const store = new Store();

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
