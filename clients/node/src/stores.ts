// Stores that remember which deliveries were applied, and the newest token of each order.

import type { DynamoDBClient, TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { Refused, type Delivery } from "./signed.js";

export type Applied = "applied" | "repeated";
/** Applies a delivery through the store's transaction. */
export type Apply<T> = (delivery: Delivery, transaction: T) => Promise<void>;

/** Remembers ids and tokens. */
export interface Store<T> {
  /**
   * In one transaction: refuses a token below the newest of the order, and runs `apply` for each delivery whose id is
   * new. If `apply` fails, no id is remembered.
   */
  once(deliveries: Delivery[], apply: Apply<T>): Promise<Applied[]>;
}

/** Remembers in memory, for tests: after a restart, everything is new. */
export function memory(): Store<undefined> {
  const newest = new Map<string, bigint>();
  const applied = new Set<string>();
  const running = new Map<string, Promise<unknown>>();

  async function receive(deliveries: Delivery[], apply: Apply<undefined>) {
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
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/** The tables of the store on Postgres. Rows of `applied` older than the serializer's retention can be deleted. */
export const POSTGRES_TABLES = `
CREATE TABLE IF NOT EXISTS newest_token (entity_key text PRIMARY KEY, token bigint NOT NULL);
CREATE TABLE IF NOT EXISTS applied (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
`;

/** Remembers in Postgres, in the transaction in which `apply` writes. `pool` is one of `pg`. */
export function postgres<C extends PostgresClient>(pool: {
  connect(): Promise<C>;
  on(event: "error", listener: (error: Error) => void): unknown;
}): Store<C> {
  // A connection that ends would end the process. A request that uses it gets an error of its own.
  const ignore = () => {};
  pool.on("error", ignore);

  async function receive(database: C, deliveries: Delivery[], apply: Apply<C>) {
    const { entityKey, fencingToken } = deliveries[0]!;
    // The row stays locked until the transaction ends, so that two requests of an order wait for each other.
    const newest = await database.query(
      `INSERT INTO newest_token (entity_key, token) VALUES ($1, $2)
       ON CONFLICT (entity_key) DO UPDATE SET token = excluded.token WHERE newest_token.token <= excluded.token`,
      [entityKey, String(fencingToken)],
    );
    if (newest.rowCount === 0) throw isOld(fencingToken);
    await database.query("SAVEPOINT effect");
    try {
      const outcomes: Applied[] = [];
      for (const delivery of deliveries) {
        const id = "INSERT INTO applied (id) VALUES ($1) ON CONFLICT DO NOTHING";
        const isNew = (await database.query(id, [delivery.id])).rowCount === 1;
        if (isNew) await apply(delivery, database);
        outcomes.push(isNew ? "applied" : "repeated");
      }
      // It fails if an error that `apply` caught has aborted the transaction. A COMMIT would roll back silently.
      await database.query("RELEASE SAVEPOINT effect");
      await database.query("COMMIT");
      return outcomes;
    } catch (failed) {
      // Neither the effect nor the id; the token stays seen. The first error says more than one that it has caused.
      const undone = database.query("ROLLBACK TO SAVEPOINT effect");
      await undone.then(() => database.query("COMMIT")).catch(() => {});
      throw failed;
    }
  }

  return {
    async once(deliveries, apply) {
      const database = await pool.connect().catch(unreachable);
      database.on("error", ignore);
      let isBroken = false;
      try {
        // It fails if the connection ended while nobody used it.
        await database.query("BEGIN").catch(unreachable);
        return await receive(database, deliveries, apply);
      } catch (failed) {
        // After a COMMIT it does nothing.
        await database.query("ROLLBACK").catch(() => (isBroken = true));
        throw failed;
      } finally {
        database.off("error", ignore);
        database.release(isBroken);
      }
    },
  };
}

/**
 * Remembers in a DynamoDB table of yours, in the transaction with the writes that `apply` adds to its list. The table's
 * partition key is the string `id`. Its rows have the number `expires`, for the table's TTL.
 */
export function dynamodb(
  table: string,
  options: {
    /** One of your own. Without it, the SDK configures one from the environment. */
    client?: DynamoDBClient;
    /** The days for which repeats are recognised: at least the serializer's `RETENTION_DAYS`. */
    retentionDays?: number;
  } = {},
): Store<TransactWriteItem[]> {
  let client = options.client;

  return {
    async once(deliveries, apply) {
      const sdk = await import("@aws-sdk/client-dynamodb");
      const database = (client ??= new sdk.DynamoDBClient());
      const { entityKey, fencingToken } = deliveries[0]!;
      const expires = { N: String(Math.ceil(Date.now() / 1000) + (options.retentionDays ?? 30) * 86_400) };
      const order = { TableName: table, Key: { id: { S: `order ${entityKey}` } } };
      const names = { ExpressionAttributeNames: { "#token": "token" } };
      const token = { N: String(fencingToken) };
      // Before `apply`, so that the token stays seen if it fails.
      const see = new sdk.UpdateItemCommand({
        ...order,
        ...names,
        UpdateExpression: "SET #token = :token, expires = :expires",
        ConditionExpression: "attribute_not_exists(#token) OR #token <= :token",
        ExpressionAttributeValues: { ":token": token, ":expires": expires },
      });
      await database.send(see).catch((failed) => {
        if (failed.name === "ConditionalCheckFailedException") throw isOld(fencingToken);
        throw orAway(failed);
      });
      const isNewest = { ConditionExpression: "#token = :token", ExpressionAttributeValues: { ":token": token } };

      async function isApplied(delivery: Delivery) {
        const Key = { id: { S: `delivery ${delivery.id}` } };
        const get = new sdk.GetItemCommand({ TableName: table, Key, ConsistentRead: true });
        const row = await database.send(get).catch((failed) => {
          throw orAway(failed);
        });
        return row.Item !== undefined;
      }

      for (let attempt = 1; ; attempt++) {
        const known = await Promise.all(deliveries.map(isApplied));
        const due = deliveries.filter((_, number) => !known[number]);
        const outcomes = known.map((isKnown): Applied => (isKnown ? "repeated" : "applied"));
        if (due.length === 0) return outcomes;
        const writes: TransactWriteItem[] = [];
        for (const delivery of due) await apply(delivery, writes);
        const ids = due.map(({ id }) => {
          const Item = { id: { S: `delivery ${id}` }, expires };
          return { Put: { TableName: table, Item, ConditionExpression: "attribute_not_exists(id)" } };
        });
        try {
          const TransactItems = [{ ConditionCheck: { ...order, ...names, ...isNewest } }, ...ids, ...writes];
          await database.send(new sdk.TransactWriteItemsCommand({ TransactItems }));
          return outcomes;
        } catch (failed: any) {
          const reasons: string[] = (failed.CancellationReasons ?? []).map(({ Code }: { Code?: string }) => Code);
          if (reasons[0] === "ConditionalCheckFailed") throw isOld(fencingToken);
          // Another request applied one of them meanwhile, or is about to.
          const isKnown = reasons.slice(1, 1 + ids.length).includes("ConditionalCheckFailed");
          if (attempt === 3 || !(isKnown || reasons.includes("TransactionConflict"))) throw orAway(failed);
        }
      }
    },
  };
}

function isOld(token: bigint): Refused {
  return new Refused(409, `token ${token} is older than the newest seen`);
}

const THROTTLED = ["ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"];

/** Returns what to answer to an error of the AWS SDK: 503 if DynamoDB did not answer, failed or throttles. */
function orAway(failed: any): unknown {
  const { $metadata, name } = failed;
  // Only requests that were tried have metadata, and only those that were answered have a status.
  const status = $metadata?.httpStatusCode ?? ($metadata && 503);
  return status >= 500 || THROTTLED.includes(name) ? away(failed) : failed;
}

function away(cause: unknown): Refused {
  return new Refused(503, "the database cannot be reached", undefined, { cause });
}

function unreachable(cause: unknown): never {
  throw away(cause);
}
