// Reads commands from standard input, one JSON object a line, and prints what came of each.

import { closeSync, existsSync, openSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { DynamoDBClient, UpdateItemCommand } from "@aws-sdk/client-dynamodb";
import { SQSClient } from "@aws-sdk/client-sqs";
import { Lease, LeaseError, LeaseRefused, Leases } from "webhook-serializer";
import { applyOnce, memory } from "webhook-serializer/receiver";

const leases = Leases.fromEnv();
const held = new Map<string, Lease>();

/** Returns what an error says, with halves of surrogate pairs replaced. */
function text(error: unknown): string {
  return Buffer.from(String(error)).toString();
}

function kind(error: unknown): string {
  if (error instanceof LeaseRefused) return error.reason;
  if (!(error instanceof LeaseError)) return text(error);
  const words = error.name.replace(/^Lease/, "").replace(/(?!^)[A-Z]/g, (letter) => `_${letter}`);
  return words.toLowerCase();
}

/** Holds the leases of `keys` in turn. Files in `folder` show who is inside, and the last token. */
async function crowd({ keys, times, folder }: { keys: string[]; times: number; folder: string }) {
  let [overlaps, inversions] = [0, 0];
  for (let time = 0; time < times; time++) {
    const number = Math.floor(Math.random() * keys.length);
    await leases.run(keys[number]!, async ({ token }) => {
      const inside = `${folder}/inside-${number}`;
      const last = `${folder}/token-${number}`;
      try {
        closeSync(openSync(inside, "wx"));
      } catch {
        overlaps++;
      }
      if (existsSync(last) && Number(readFileSync(last, "utf8")) >= token) inversions++;
      writeFileSync(last, String(token));
      await sleep(1);
      unlinkSync(inside);
    }, { wait: 120_000 });
  }
  return { holds: times, overlaps, inversions };
}

/**
 * Aborts requests for a lease at each moment between the store's reply and the caller's hearing of it. Returns how many
 * were refused, and how many of those are still held.
 */
async function aborted(key: string) {
  let [refused, held] = [0, 0];
  for (let turns = 0; turns < 20; turns++) {
    const dynamodb = new DynamoDBClient({ maxAttempts: 1 });
    const controller = new AbortController();
    const abort = async () => {
      for (let turn = 0; turn < turns; turn++) await undefined;
      controller.abort();
    };
    const send = dynamodb.send.bind(dynamodb) as (...given: any[]) => Promise<any>;
    dynamodb.send = async (...given: any[]) => {
      const reply = await send(...given);
      if (!controller.signal.aborted) void abort();
      return reply;
    };
    const own = new Leases({ table: process.env.ENTITIES_TABLE!, dynamodb });
    const name = `${key}-${turns}`;
    try {
      await (await own.acquire(name, { signal: controller.signal })).release();
    } catch {
      refused++;
      // A request that was aborted before its reply is still withdrawn.
      for (let time = 0; time < 20 && (await leases.lookup(name)).held; time++) await sleep(50);
      if ((await leases.lookup(name)).held) held++;
    }
  }
  return { refused, held };
}

/** Releases a lease while a delivery waits and the queue is down. Returns the process's warnings. */
async function unwoken(key: string) {
  const warnings: string[] = [];
  process.on("warning", ({ name, message }) => warnings.push(`${name}: ${message}`));
  const table = process.env.ENTITIES_TABLE!;
  const sqs = new SQSClient({ endpoint: "http://127.0.0.1:1", maxAttempts: 1 });
  const lease = await new Leases({ table, queueUrl: process.env.QUEUE_URL, sqs }).acquire(key);
  const input = { TableName: table, Key: { entity: { S: key } }, UpdateExpression: "ADD tail :one" };
  const command = new UpdateItemCommand({ ...input, ExpressionAttributeValues: { ":one": { N: "1" } } });
  await new DynamoDBClient({}).send(command);
  await lease.release();
  await sleep(0);
  return { warnings: warnings.filter((warning) => warning.startsWith("LeaseWarning")) };
}

/** Returns how many requests were sent when the work of a lease hears that its time has ended, and how many in all. */
async function outOfTime(key: string) {
  const dynamodb = new DynamoDBClient({ maxAttempts: 1 });
  const send = dynamodb.send.bind(dynamodb) as (...given: any[]) => Promise<any>;
  let [sent, heard] = [0, 0];
  dynamodb.send = (...given: any[]) => {
    sent++;
    return send(...given);
  };
  const own = new Leases({ table: process.env.ENTITIES_TABLE!, dynamodb });
  const work = ({ signal }: Lease) => {
    signal.addEventListener("abort", () => (heard = sent));
    return sleep(60_000, undefined, { signal });
  };
  await own.run(key, work, { within: 2000 }).catch(() => {});
  return { heard, sent };
}

/** Returns what comes of a connection without a region. */
async function withoutRegion(key: string) {
  delete process.env.AWS_REGION;
  process.env.AWS_CONFIG_FILE = "/dev/null";
  return { token: (await Leases.fromEnv().acquire(key)).token };
}

/** Returns what comes of options that TypeScript's types refuse. */
async function misspelt(key: string) {
  const table = process.env.ENTITIES_TABLE!;
  const untyped = (options: unknown) => options as any;
  const attempts: (() => unknown)[] = [
    () => leases.acquire(key, untyped({ wiat: 0 })),
    () => leases.run(key, () => "ran", untyped({ timeout: 0 })),
    () => leases.commit(key, () => ["ran", []], untyped(3000)),
    () => leases.once("report", untyped({ schedule: "* * * * *", oncrash: "skip" }), () => "ran"),
    () => new Leases(untyped({ table, queueURL: process.env.QUEUE_URL })),
    () => new Leases({ table, queueUrl: "nonsense" }),
    () => new Leases(untyped({})),
    () => leases.once("report", untyped({}), () => "ran"),
    () => leases.acquire("order/\ud800"),
    () => leases.commit(key, () => ["ran", [{ Put: { TableName: "totals\ud800", Item: {} } }]]),
    () => leases.run(key, untyped(function* () {})),
    () => new Leases({ table, dynamodb: untyped({}) }).acquire(key),
    () => new Leases({ table, dynamodb: new DynamoDBClient({}) }).acquire(key),
    () => new Leases({ table, queueUrl: process.env.QUEUE_URL, sqs: new SQSClient({}) }).acquire(key),
    () => Leases.fromEnv({ ENTITIES_TABLE: table, QUEUE_URL: "nonsense" }),
    () => applyOnce(untyped({ secret: "c2VjcmV0", store: memory(), onEror: () => {} }), async () => {}),
  ];
  const messages: string[] = [];
  for (const attempt of attempts) {
    try {
      messages.push(JSON.stringify(await attempt()));
    } catch (refused) {
      messages.push(String(refused));
    }
  }
  return { messages };
}

/** Calls a job. Prints a line once its work has begun, if it takes long. */
async function once({ key, schedule, zone, onCrash, work, writes, error }: any) {
  return leases.once(key, { schedule, zone, onCrash }, async (run) => {
    if (writes) run.commit(writes);
    if (error) throw new Error(`${error} \ud83d`);
    if (work) console.log(JSON.stringify({ begun: run.token }));
    await sleep(work ?? 0, undefined, { signal: run.signal });
    return { tick: run.tick.getTime(), token: run.token };
  });
}

async function answer(command: any): Promise<object> {
  const { op, key, length, wait, within } = command;
  const terms = {
    ...(length !== undefined && { length }),
    ...(wait !== undefined && { wait }),
    ...(within !== undefined && { within }),
  };
  switch (op) {
    case "acquire": {
      const lease = await leases.acquire(key, { ...terms, renew: false });
      held.set(key, lease);
      return { token: lease.token };
    }
    case "run": {
      const token = await leases.run(
        key,
        async (lease) => {
          if (command.block) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, command.block);
          await sleep(command.work, undefined, { signal: lease.signal });
          return lease.token;
        },
        terms,
      );
      return { token };
    }
    case "using": {
      await using lease = await leases.acquire(key, terms);
      return { token: lease.token };
    }
    case "given_up": {
      const began = Date.now();
      const signal = AbortSignal.timeout(command.after);
      const name = await leases.run(key, () => "granted", { ...terms, signal }).catch((error) => error.name);
      return { name, isQuick: Date.now() - began < 5000 };
    }
    case "once":
      return { ran: await once(command) };
    case "aborted":
      return await aborted(key);
    case "unwoken":
      return await unwoken(key);
    case "out_of_time":
      return await outOfTime(key);
    case "without_region":
      return await withoutRegion(key);
    case "misspelt":
      return await misspelt(key);
    case "unless_held":
      return { ran: (await leases.runUnlessHeld(key, () => true)) ?? false };
    case "write":
      return { value: await leases.commit(key, () => ["written", command.writes], terms) };
    case "lookup":
      return await leases.lookup(key);
    case "crowd":
      return await crowd(command);
    case "extend":
      await held.get(key)!.extend();
      return {};
    case "release":
      await held.get(key)!.release();
      return {};
    case "commit":
      await held.get(key)!.commit(command.writes);
      return {};
    default:
      throw new Error(`no such command: ${op}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const answered = await answer(JSON.parse(line)).catch((error) => ({ error: kind(error), message: text(error) }));
  console.log(JSON.stringify(answered));
}
