// Jobs that run once for each tick, whatever host calls them.

import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { LeaseInvalid } from "./errors.js";
import type { Machine } from "./machine.js";
import type { Names } from "./options.js";
import { tablesOf } from "./writes.js";

/** When a job is due. All hosts must give the same schedule and zone. */
export interface JobOptions {
  /** Five cron fields, such as `0 3 * * *`, or a rate, such as `every 6 hours`. */
  schedule: string;
  /** The time zone of the cron fields, such as `Europe/Berlin`. Default: UTC. */
  zone?: string;
  /** Whether a tick runs again if its process died: at most three times in all, or never. Default: `again`. */
  onCrash?: "again" | "skip";
  /** The length of the job's lease in milliseconds, from 1 s to 10 min. It is renewed. Default: 30,000. */
  length?: number;
  /** Aborts the run's own signal. If the work then throws, the tick counts as crashed. */
  signal?: AbortSignal;
}

/** @internal */
export const JOB_OPTIONS: Names<JobOptions> = { schedule: true, zone: true, onCrash: true, length: true, signal: true };

/** The run of a tick. */
export class JobRun {
  #writes: TransactWriteItem[] = [];

  /** @internal */
  constructor(
    readonly job: string,
    /** When the tick was due: the same for each start. */
    readonly tick: Date,
    /** The fencing token. Send it along with every effect elsewhere. */
    readonly token: number,
    /** Aborted as soon as the job's lease is lost, or the options' signal is aborted. */
    readonly signal: AbortSignal,
  ) {}

  /**
   * Makes at most 99 writes exactly once, in the transaction that records the tick when the work has returned. If a
   * condition does not hold, nothing is written, the tick is recorded as failed, and `once` fails with `NotCommitted`.
   */
  commit(writes: TransactWriteItem[]): void {
    this.#writes = [...writes];
  }

  /** @internal */
  get writes(): TransactWriteItem[] {
    return this.#writes;
  }
}

/** @internal */
export async function runJob<T>(
  machine: Machine,
  name: string,
  signal: AbortSignal | undefined,
  work: (run: JobRun) => Promise<T> | T,
): Promise<T[]> {
  const values: T[] = [];
  const failures: unknown[] = [];
  // No tick is recorded or started any more: a run that was begun counts as crashed.
  const stop = (reason: unknown) => {
    machine.drop();
    return reason;
  };
  const abort = () => machine.abort(signal!.reason);
  signal?.addEventListener("abort", abort, { once: true });
  machine.onEnd = () => signal?.removeEventListener("abort", abort);
  let event = await machine.begin();
  while (event.is === "due") {
    if (signal?.aborted) throw stop(signal.reason);
    const run = new JobRun(name, new Date(event.tick), event.token, machine.signal);
    try {
      values.push(await Promise.race([work(run), machine.lost()]));
      event = await machine.command({ do: "done", tables: tablesOf(run.writes) }, run.writes);
    } catch (failed) {
      if (machine.error) throw machine.error;
      if (machine.isOver) throw failures[0] ?? failed;
      if (signal?.aborted && !(failed instanceof LeaseInvalid)) throw stop(failed);
      failures.push(failed);
      // The caller gets the work's error, which matters more than an error of its record.
      event = await machine.command({ do: "failed", error: text(failed) }).catch(() => Promise.reject(failures[0]));
    }
  }
  if (failures.length > 0) throw failures[0];
  return values;
}

/** Returns what an error says. A half of a surrogate pair, which has no UTF-8, is replaced. */
function text(failed: unknown): string {
  try {
    return new TextDecoder().decode(new TextEncoder().encode(String(failed)));
  } catch {
    return "an error without a text";
  }
}
