// Receives what the handler `forward` posts: verifies it, and applies each delivery once and in order.

import { createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";

const TOLERANCE = 300; // seconds
/** A delivery has at most 6 MiB. As JSON, in a list, it can be twice as long. */
const LARGEST_BODY = 13 * 1024 * 1024;
/** The signed ids of lists begin with it. */
const GROUP = "group:";
const ANSWER = "application/vnd.webhook-serializer.answer+json";

/** A webhook's delivery. */
export interface Delivery {
  /** The same for every attempt of a delivery. Apply it once. */
  id: string;
  /** What the sender calls the delivery. */
  deliveryId: string;
  source: string;
  topic: string;
  /** The order, such as `shopify/order/450789469`. */
  entityKey: string;
  /** Greater than that of any earlier start for this order. */
  fencingToken: bigint;
  sequence: bigint;
  attempt: number;
  /** How the event's time compares with the newest that was applied. */
  age: "newer" | "same-time" | "older" | "unknown";
  body: Buffer;
}

/** An answer other than 2xx. Throw it with 410 for what will never be wanted, or with 503 for not now. */
export class Refused extends Error {
  override name = "Refused";

  constructor(
    readonly status: number,
    /** Stored as the delivery's error. No secrets and no customers' data. */
    reason: string,
    /** The seconds after which the delivery should come again. */
    readonly retryAfter?: number,
  ) {
    super(reason);
  }
}

/** A request's headers, from `node:http` or `fetch`. */
export type RequestHeaders = Headers | Record<string, string | string[] | undefined>;

function header(headers: RequestHeaders, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  if (typeof value !== "string") throw new Refused(400, `there is no ${name}`);
  return value;
}

/** Throws `Refused` unless one of `secrets` signed `body` in the last five minutes. `body` is as it was received. */
export function verify(secrets: string | string[], headers: RequestHeaders, body: Uint8Array, now = Date.now()): void {
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  if (!/^[0-9]+$/.test(timestamp)) throw new Refused(401, "the webhook-timestamp cannot be read");
  const claimed = header(headers, "webhook-signature")
    .split(" ")
    .filter((entry) => entry.startsWith("v1,"))
    .map((entry) => Buffer.from(entry.slice("v1,".length), "base64"));
  let matches = 0;
  for (const secret of [secrets].flat()) {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    // Anybody can sign with an empty key.
    if (key.length === 0) throw new TypeError("a secret of the receiver is empty, or not in base64");
    const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
    for (const signature of claimed) {
      // No `||`, which would stop at the first match and show it by its time.
      matches |= Number(signature.length === expected.length && timingSafeEqual(signature, expected));
    }
  }
  if (matches === 0) throw new Refused(401, "no known secret makes this signature");
  if (Math.abs(now / 1000 - Number(timestamp)) > TOLERANCE) {
    throw new Refused(401, "signed too long ago, or in the future");
  }
}

/** Returns the deliveries of a verified request: one, or those of a list. All are of one order, the oldest first. */
export function deliveriesOf(headers: RequestHeaders, body: Buffer): Delivery[] {
  // The id is signed. The content type is the sender's, who could write anything.
  if (header(headers, "webhook-id").startsWith(GROUP)) {
    const list = JSON.parse(body.toString("utf8"));
    return list.deliveries.map((one: any) => ({
      id: one.id,
      deliveryId: one.delivery_id,
      source: list.source,
      topic: one.topic,
      entityKey: list.entity_key,
      fencingToken: BigInt(list.fencing_token),
      sequence: BigInt(one.sequence),
      attempt: one.attempt,
      age: one.age,
      body: Buffer.from(one.body, one.body_is_base64 ? "base64" : "utf8"),
    }));
  }
  const text = (name: string) => decodeURIComponent(header(headers, `serializer-${name}`));
  const delivery: Delivery = {
    id: header(headers, "webhook-id"),
    deliveryId: text("delivery-id"),
    source: text("source"),
    topic: text("topic"),
    entityKey: text("entity-key"),
    fencingToken: BigInt(text("fencing-token")),
    sequence: BigInt(text("sequence")),
    attempt: Number(text("attempt")),
    age: text("age") as Delivery["age"],
    body,
  };
  return [delivery];
}

export type Applied = "applied" | "repeated";

/** Remembers ids and tokens. */
export interface Store<T> {
  /**
   * In one transaction: refuses a token below the newest of the order, and runs `apply` for each delivery whose id is
   * new. If `apply` fails, no id is remembered.
   */
  once(deliveries: Delivery[], apply: (delivery: Delivery, transaction: T) => Promise<void>): Promise<Applied[]>;
}

/** Remembers in memory, for tests: after a restart, everything is new. */
export function memory(): Store<undefined> {
  const newest = new Map<string, bigint>();
  const applied = new Set<string>();
  const running = new Map<string, Promise<unknown>>();

  async function receive(deliveries: Delivery[], apply: (delivery: Delivery, none: undefined) => Promise<void>) {
    const { entityKey, fencingToken } = deliveries[0]!;
    const before = newest.get(entityKey);
    if (before !== undefined && fencingToken < before) {
      throw new Refused(409, `token ${fencingToken} is older than ${before}`);
    }
    newest.set(entityKey, fencingToken);
    const due = deliveries.filter(({ id }) => !applied.has(id));
    for (const delivery of due) await apply(delivery, undefined);
    for (const { id } of due) applied.add(id);
    return deliveries.map((delivery): Applied => (due.includes(delivery) ? "applied" : "repeated"));
  }

  return {
    once(deliveries, apply) {
      const { entityKey } = deliveries[0]!;
      const done = (running.get(entityKey) ?? Promise.resolve()).then(() => receive(deliveries, apply));
      running.set(entityKey, done.catch(() => {}));
      return done;
    },
  };
}

/** The part of a client of `pg` that the store uses. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ rowCount: number | null }>;
  release(destroy?: boolean): void;
}

/** The tables of the store on Postgres. Rows of `applied` older than the serializer's retention can be deleted. */
export const POSTGRES_TABLES = `
CREATE TABLE IF NOT EXISTS newest_token (entity_key text PRIMARY KEY, token bigint NOT NULL);
CREATE TABLE IF NOT EXISTS applied (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
`;

/** Remembers in Postgres, in the transaction in which `apply` writes. `pool` is one of `pg`. */
export function postgres<C extends PostgresClient>(pool: { connect(): Promise<C> }): Store<C> {
  async function receive(database: C, deliveries: Delivery[], apply: (delivery: Delivery, database: C) => Promise<void>) {
    const { entityKey, fencingToken } = deliveries[0]!;
    // The row stays locked until the transaction ends, so that two requests of an order wait for each other.
    const newest = await database.query(
      `INSERT INTO newest_token (entity_key, token) VALUES ($1, $2)
       ON CONFLICT (entity_key) DO UPDATE SET token = excluded.token WHERE newest_token.token <= excluded.token`,
      [entityKey, String(fencingToken)],
    );
    if (newest.rowCount === 0) throw new Refused(409, `token ${fencingToken} is older than the newest seen`);
    await database.query("SAVEPOINT effect");
    try {
      const outcomes: Applied[] = [];
      for (const delivery of deliveries) {
        const id = "INSERT INTO applied (id) VALUES ($1) ON CONFLICT DO NOTHING";
        const isNew = (await database.query(id, [delivery.id])).rowCount === 1;
        if (isNew) await apply(delivery, database);
        outcomes.push(isNew ? "applied" : "repeated");
      }
      // It fails if an error that `apply` caught has aborted the transaction. A COMMIT would roll back without an error.
      await database.query("RELEASE SAVEPOINT effect");
      await database.query("COMMIT");
      return outcomes;
    } catch (failed) {
      // Neither the effect nor the id; the token stays seen.
      await database.query("ROLLBACK TO SAVEPOINT effect");
      await database.query("COMMIT");
      throw failed;
    }
  }

  return {
    async once(deliveries, apply) {
      const database = await pool.connect();
      let isBroken = false;
      try {
        await database.query("BEGIN");
        return await receive(database, deliveries, apply);
      } catch (failed) {
        // After a COMMIT it does nothing.
        await database.query("ROLLBACK").catch(() => (isBroken = true));
        throw failed;
      } finally {
        database.release(isBroken);
      }
    },
  };
}

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
  /** Called with each error that is answered 500, whose text is not sent. */
  onError?: (error: unknown) => void;
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
export function applyOnce<T>(
  options: ReceiverOptions & {
    store: Store<T>;
    /** Called for each delivery after the transaction. */
    onApplied?: (delivery: Delivery, outcome: Applied) => void;
  },
  apply: (delivery: Delivery, transaction: T) => Promise<void>,
): Receiver {
  return receiver(options, async (deliveries) => {
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
  return receiver(options, async (deliveries) => {
    return { status: 200, headers: { "content-type": ANSWER }, body: JSON.stringify(await work(deliveries)) };
  });
}

function receiver(options: ReceiverOptions, answer: (deliveries: Delivery[]) => Promise<Reply>): Receiver {
  const secrets = [options.secret].flat();
  if (secrets.length === 0 || secrets.some((secret) => !secret)) throw new TypeError("the receiver has no secret");

  async function reply(headers: RequestHeaders, read: () => Promise<Buffer>): Promise<Reply> {
    try {
      const body = await read();
      verify(secrets, headers, body);
      return await answer(deliveriesOf(headers, body));
    } catch (failed) {
      if (!(failed instanceof Refused)) options.onError?.(failed);
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
