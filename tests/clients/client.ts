// Reads commands from standard input, one JSON object a line, and prints what came of each.

import { closeSync, existsSync, openSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Lease, LeaseError, LeaseRefused, Leases } from "webhook-serializer";

const leases = Leases.fromEnv();
const held = new Map<string, Lease>();

function kind(error: unknown): string {
  if (error instanceof LeaseRefused) return error.reason;
  if (!(error instanceof LeaseError)) return String(error);
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
    });
  }
  return { holds: times, overlaps, inversions };
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
  const answered = await answer(JSON.parse(line)).catch((error) => ({ error: kind(error), message: String(error) }));
  console.log(JSON.stringify(answered));
}
