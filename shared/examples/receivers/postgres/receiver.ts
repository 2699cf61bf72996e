// Receives what the handler `forward` posts, and applies it to Postgres: the
// order's row, its newest token and the delivery's id in one transaction.
//
//     npm install && npm run build                         (Node 20 or newer)
//     SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080 \
//       DATABASE_URL=postgres://localhost/shop npm start
//
// ../receiver.ts says what makes a receiver right. Here:
//
// - A late token is refused, a repeat acknowledged, by the tables of schema.sql.
// - `newest_token`'s row is locked until the transaction ends. Two requests of
//   one order, which only a worker that was taken for dead can cause, wait for
//   each other there.
// - Nothing is answered before COMMIT. If its answer is lost, the delivery comes
//   again, and its id says whether it was applied.

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";

const TOLERANCE = 300; // seconds
const LARGEST_BODY = 6 * 1024 * 1024; // no delivery is larger

interface Delivery {
  id: string;
  deliveryId: string;
  source: string;
  topic: string;
  entityKey: string;
  fencingToken: bigint;
  age: string;
  body: Buffer;
}

/** Answered with another status than 2xx; the reason stands in the delivery's error. */
class Refused extends Error {
  constructor(
    readonly status: number,
    reason: string,
    readonly retryAfter?: number,
  ) {
    super(reason);
  }
}

// ---- apply, in order and once ----------------------------------------------

/** Applies `delivery` unless it was; throws `Refused` if its token is late. */
async function receive(database: pg.PoolClient, delivery: Delivery): Promise<"applied" | "repeated"> {
  await database.query("BEGIN");
  try {
    const { entityKey, fencingToken, id } = delivery;
    const newest = await database.query(
      `INSERT INTO newest_token (entity_key, token) VALUES ($1, $2)
       ON CONFLICT (entity_key) DO UPDATE SET token = excluded.token WHERE newest_token.token <= excluded.token`,
      [entityKey, fencingToken],
    );
    // 409 and not 200: nobody waits for this answer if the token really is old. Should this table be
    // wrong, restored from a backup say, the delivery is set aside where a person sees it.
    if (newest.rowCount === 0) throw new Refused(409, `token ${fencingToken} is older than the newest seen`);
    await database.query("SAVEPOINT effect");
    let outcome: "applied" | "repeated" = "repeated";
    try {
      const first = await database.query("INSERT INTO applied (id) VALUES ($1) ON CONFLICT DO NOTHING", [id]);
      if (first.rowCount === 1) {
        await apply(database, delivery);
        outcome = "applied";
      }
      // It fails if an error that `apply` caught has aborted the transaction. A COMMIT would roll back without an error.
      await database.query("RELEASE SAVEPOINT effect");
    } catch (error) {
      // Neither the effect nor the id; the token stays seen.
      await database.query("ROLLBACK TO SAVEPOINT effect");
      await database.query("COMMIT");
      throw error;
    }
    await database.query("COMMIT");
    return outcome;
  } catch (error) {
    // After a COMMIT it does nothing.
    await database.query("ROLLBACK");
    throw error;
  }
}

/**
 * Yours. Write through `database`, so that the effect lands with token and id.
 *
 * What cannot be in the transaction, such as a mail, happens at least once: pass
 * `delivery.id` on as an idempotency key. Throw `new Refused(410, …)` for what will
 * never be wanted, `new Refused(503, …, 30)` for not now; any other error is a 500
 * and is tried again.
 */
async function apply(database: pg.PoolClient, delivery: Delivery): Promise<void> {
  if (delivery.topic === "app/uninstalled") throw new Refused(410, "nobody here wants to know");
  await database.query(
    `INSERT INTO orders (entity_key, last_topic, last_body, deliveries) VALUES ($1, $2, $3, 1)
     ON CONFLICT (entity_key) DO UPDATE
     SET last_topic = excluded.last_topic, last_body = excluded.last_body, deliveries = orders.deliveries + 1`,
    [delivery.entityKey, delivery.topic, delivery.body.toString("utf8")],
  );
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
  if (Math.abs(now - Number(timestamp)) > TOLERANCE) throw new Refused(401, "signed too long ago, or in the future");
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

async function answer(secrets: string[], pool: pg.Pool, request: IncomingMessage): Promise<string> {
  if (request.method !== "POST") throw new Refused(405, "deliveries are posted");
  const body = await read(request);
  verify(secrets, request.headers, body, Date.now() / 1000);
  const told = (name: string) => decodeURIComponent(header(request.headers, `serializer-${name}`));
  const delivery: Delivery = {
    id: header(request.headers, "webhook-id"),
    deliveryId: told("delivery-id"),
    source: told("source"),
    topic: told("topic"),
    entityKey: told("entity-key"),
    // A token can exceed 2^53.
    fencingToken: BigInt(told("fencing-token")),
    age: told("age"),
    body,
  };
  const database = await pool.connect().catch((error: Error) => {
    // 503: it is not this delivery's fault. After three orders in a row, the source is held back for a while.
    throw new Refused(503, `the database cannot be reached: ${error.message}`);
  });
  let broken: Error | undefined;
  try {
    const outcome = await receive(database, delivery);
    console.log(
      JSON.stringify({
        outcome,
        source: delivery.source,
        topic: delivery.topic,
        delivery_id: delivery.deliveryId,
        entity_key: delivery.entityKey,
        fencing_token: Number(delivery.fencingToken),
        age: delivery.age,
      }),
    );
    return outcome;
  } catch (error) {
    if (!(error instanceof Refused || error instanceof pg.DatabaseError)) broken = error as Error;
    throw error;
  } finally {
    // A connection that failed is not used again.
    database.release(broken);
  }
}

// Several, with a space between them, while a secret is rolled.
const secrets = (process.env.SECRET ?? "").split(" ").filter((secret) => secret !== "");
if (secrets.length === 0) throw new Error("SECRET is not set");
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: 2000 });
pool.on("error", () => {}); // an idle connection that ended; the next request opens another
await pool.query(readFileSync(new URL("../schema.sql", import.meta.url), "utf8"));

const server = createServer((request, response) => {
  answer(secrets, pool, request).then(
    (outcome) => response.writeHead(200).end(outcome),
    (error: unknown) => {
      const refused = error instanceof Refused ? error : new Refused(500, (error as Error).name);
      const headers: Record<string, string> = { "content-type": "text/plain; charset=utf-8" };
      if (refused.retryAfter !== undefined) headers["retry-after"] = String(refused.retryAfter);
      response.writeHead(refused.status, headers).end(refused.message);
    },
  );
});
server.listen(Number(process.env.PORT ?? "8080"), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
});
