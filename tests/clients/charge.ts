// What the checkout in docs/leases.md imports. Leaves a trace as `client.ts` does.

import { closeSync, openSync, unlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export async function charge(body: unknown, { token, signal }: { token: number; signal: AbortSignal }) {
  const inside = `${process.env.FOLDER}/inside`;
  closeSync(openSync(inside, "wx"));
  await sleep(200, undefined, { signal });
  unlinkSync(inside);
  return { body, token };
}
