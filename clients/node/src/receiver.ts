// Receives what the handler `forward` posts: verifies it, and applies each delivery once and in order.

import type { IncomingMessage, ServerResponse } from "node:http";
import { misnamed, type Names } from "./options.js";
import { deliveriesOf, keyOf, Refused, verify, type Delivery, type RequestHeaders } from "./signed.js";
import type { Applied, Apply, Store } from "./stores.js";

export { deliveriesOf, Refused, verify, type Delivery, type RequestHeaders } from "./signed.js";
export { dynamodb, memory, postgres, POSTGRES_TABLES } from "./stores.js";
export type { Applied, Apply, PostgresClient, Store } from "./stores.js";

/** A delivery has at most 6 MiB. As JSON, in a list, it can be twice as long. */
const LARGEST_BODY = 13 * 1024 * 1024;
const ANSWER = "application/vnd.webhook-serializer.answer+json";

/** What a handler's answer says: see the page *Handlers*, "Writes in an answer". */
export interface Answer {
  outcome: "done";
  commit: object[];
}

/**
 * Returns an answer with DynamoDB writes, as in `TransactWriteItems`. The worker makes them in the transaction that
 * settles the delivery. For `invoke`, return it from the function; for `forward`, from the work of `answerWith`.
 */
export function commit(writes: object[]): Answer {
  const withBase64 = function (this: any, name: string, value: unknown) {
    return this[name] instanceof Uint8Array ? Buffer.from(this[name]).toString("base64") : value;
  };
  return { outcome: "done", commit: JSON.parse(JSON.stringify(writes, withBase64)) };
}

export interface ReceiverOptions {
  /** The secret of the source's `forward`. Several while it is rotated. */
  secret: string | string[];
  /** Called with each error whose text is not sent; if omitted, `console.error`. */
  onError?: (error: unknown) => void;
}

export interface ApplyOnceOptions<T> extends ReceiverOptions {
  store: Store<T>;
  /** Called for each delivery after the transaction. */
  onApplied?: (delivery: Delivery, outcome: Applied) => void;
}

interface Reply {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** A receiver, as a function of `node:http`, Express and of `fetch`. */
export interface Receiver {
  /** For `node:http` and Express: `app.post("/webhooks", receiver.node)`, in front of any `express.json()`. */
  node(request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** For Hono and others: `app.post("/webhooks", (context) => receiver.fetch(context.req.raw))`. */
  fetch(request: Request): Promise<Response>;
}

/**
 * Returns a receiver that applies each delivery once, and refuses tokens older than the newest of their order. Write
 * through the store's transaction: what `apply` does elsewhere happens at least once.
 */
export function applyOnce<T>(options: ApplyOnceOptions<T>, apply: Apply<T>): Receiver {
  const names: Names<ApplyOnceOptions<T>> = { secret: true, onError: true, store: true, onApplied: true };
  return receiver(options, names, async (deliveries) => {
    const outcomes = await options.store.once(deliveries, apply);
    deliveries.forEach((delivery, number) => options.onApplied?.(delivery, outcomes[number]!));
    return { status: 200, headers: {}, body: outcomes.join(", ") };
  });
}

/** Returns a receiver whose answers have DynamoDB writes: `answerWith(options, (deliveries) => commit([…]))`. */
export function answerWith(
  options: ReceiverOptions,
  work: (deliveries: Delivery[]) => Promise<Answer> | Answer,
): Receiver {
  return receiver(options, { secret: true, onError: true }, async (deliveries) => {
    return { status: 200, headers: { "content-type": ANSWER }, body: JSON.stringify(await work(deliveries)) };
  });
}

function receiver<O extends ReceiverOptions>(
  options: O,
  names: Names<O>,
  answer: (deliveries: Delivery[]) => Promise<Reply>,
): Receiver {
  const reason = misnamed(options, names);
  if (reason !== undefined) throw new TypeError(reason);
  const secrets = [options.secret].flat();
  if (secrets.length === 0 || secrets.some((secret) => !secret)) throw new TypeError("the receiver has no secret");
  secrets.forEach(keyOf);
  const report = options.onError ?? console.error;

  async function reply(headers: RequestHeaders, read: () => Promise<Buffer>): Promise<Reply> {
    try {
      const body = await read();
      const length = headers instanceof Headers ? headers.get("content-length") : headers["content-length"];
      if (body.length === 0 && Number(length) > 0) throw new Refused(500, PARSED);
      verify(secrets, headers, body);
      return await answer(deliveriesOf(headers, body));
    } catch (failed) {
      const unsent = failed instanceof Refused ? failed.cause : failed;
      if (unsent !== undefined) report(unsent);
      const { status, message, retryAfter } = failed instanceof Refused ? failed : new Refused(500, "it failed");
      return { status, headers: retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }, body: message };
    }
  }

  return {
    async node(request, response) {
      const { status, headers, body } = await reply(request.headers, () => bodyOf(request));
      // The rest of a body that is too large is not read.
      if (!request.complete) response.setHeader("connection", "close");
      response.writeHead(status, headers).end(body);
    },
    async fetch(request) {
      const { status, headers, body } = await reply(request.headers, async () => {
        if (request.bodyUsed) throw new Refused(500, PARSED);
        return request.body === null ? Buffer.alloc(0) : await collected(request.body as any);
      });
      return new Response(body, { status, headers });
    },
  };
}

const PARSED =
  "the body was parsed before the receiver, as express.json() does: register the receiver in front of it, or give its " +
  'route express.raw({ type: () => true, limit: "13mb" })';

async function bodyOf(request: IncomingMessage & { body?: unknown }): Promise<Buffer> {
  // `express.raw()` leaves the bytes.
  if (Buffer.isBuffer(request.body)) return request.body;
  if (request.readableEnded || (request.body !== undefined && request.body !== null)) throw new Refused(500, PARSED);
  return collected(request);
}

async function collected(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream) {
    length += chunk.length;
    if (length > LARGEST_BODY) throw new Refused(413, "the body is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
