import { basename } from "node:path";
import type { DynamoDBClient, TransactWriteItem } from "@aws-sdk/client-dynamodb";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { sender, type Send } from "./aws.js";
import { CoreClient } from "./core.js";
import { LeaseContended, LeaseInvalid, LeaseKeyInvalid } from "./errors.js";
import { JOB_OPTIONS, runJob, type JobOptions, type JobRun } from "./jobs.js";
import { Machine } from "./machine.js";
import { misnamed, type Names } from "./options.js";
import { hasHalfCharacter, tablesOf } from "./writes.js";

/** How long a lease lasts, and how long to wait for it, in milliseconds. */
export interface Terms {
  /** The length of the lease, from 1 s to 15 min. It is renewed each time a third has passed. Default: 15,000. */
  length?: number;
  /** How long to wait for a lease that another holder has. 0 does not wait. Default: 30,000. */
  wait?: number;
  /** The caller's remaining time, such as `context.getRemainingTimeInMillis()`. It limits the wait and the lease. */
  within?: number;
  /** Ends the wait. Once the lease is held, aborts the lease's own signal, and the work decides when to stop. */
  signal?: AbortSignal;
}

export interface LeasesOptions {
  /** The name of the entities table. */
  table: string;
  /** The name of the inbox table. Only jobs need it. */
  inboxTable?: string | undefined;
  /** The queue of the workers. A release then wakes a worker if deliveries wait. */
  queueUrl?: string | undefined;
  /** A client with `maxAttempts: 1`. Default: one that the AWS SDK configures from the environment. */
  dynamodb?: DynamoDBClient;
  /** A client with `maxAttempts: 1`. Default: one that the AWS SDK configures from the environment. */
  sqs?: SQSClient;
  /** The holder that operators see, cut to 60 bytes. Default: the name of the program. */
  holder?: string;
  /** How long rows of idle orders are kept. Must equal the deployment's retention. Default: 30. */
  retentionDays?: number;
}

const TERMS: Names<Terms & { renew?: boolean }> = { length: true, wait: true, within: true, signal: true, renew: true };

const SETTINGS: Names<LeasesOptions> = {
  table: true,
  inboxTable: true,
  queueUrl: true,
  dynamodb: true,
  sqs: true,
  holder: true,
  retentionDays: true,
};

const WHERE =
  "(the deployment's output EntitiesTable has the name; on this machine `serializer local --env-file` writes it to a file)";

/** What `lookup` has read. Only the condition of a write proves who has a lease. */
export interface SeenLease {
  held: boolean;
  by?: string;
  /** `exclusive`, or `drain` for a worker. */
  kind?: string;
  /** When the lease expires unless it is renewed. */
  until?: Date;
  token?: number;
  /** The number of deliveries that wait. */
  waiting: number;
}

/** Stops the renewal of leases that were neither released nor kept. */
const forgotten = new FinalizationRegistry<Machine>((machine) => machine.drop());

/** A granted lease. */
export class Lease implements AsyncDisposable {
  /** Aborted as soon as the lease is lost, the time `within` ends, or the terms' signal is aborted. */
  readonly signal: AbortSignal;
  readonly #machine: Machine;

  /** @internal */
  constructor(
    machine: Machine,
    readonly key: string,
    /** The fencing token. Send it along with every effect elsewhere. */
    readonly token: number,
    readonly id: string,
  ) {
    this.#machine = machine;
    this.signal = machine.signal;
    forgotten.register(this, machine);
  }

  /** Renews the lease for its full length. */
  async extend(): Promise<void> {
    await this.#machine.command({ do: "extend" });
  }

  /** Releases the lease. Success proves that no other holder had it since it was granted. */
  async release(): Promise<void> {
    await this.#machine.command({ do: "release" });
  }

  /**
   * Makes at most 99 writes and releases the lease, all in one transaction. After `NotCommitted` nothing was written,
   * and the lease is still held.
   */
  async commit(writes: TransactWriteItem[]): Promise<void> {
    await this.#machine.command({ do: "commit", tables: tablesOf(writes) }, writes);
  }

  /** Releases the lease unless that was done. Throws if the lease was lost. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#machine.error) throw this.#machine.error;
    if (!this.#machine.isOver) await this.release();
  }
}

/** Grants exclusive leases on orders: while you hold one, workers and other holders wait. */
export class Leases {
  readonly #core: CoreClient;
  readonly #sender: () => Promise<Send>;
  #send: Promise<Send> | undefined;

  constructor(options: LeasesOptions) {
    checkNames(options, SETTINGS);
    const { table, inboxTable, queueUrl, dynamodb, sqs, holder = program(), retentionDays } = options;
    this.#core = new CoreClient({ table, inboxTable, queueUrl, holder, retentionDays });
    this.#sender = () => sender(dynamodb, sqs, queueUrl);
  }

  /**
   * Connects to the table that `ENTITIES_TABLE` names. Also reads `INBOX_TABLE`, `QUEUE_URL` and
   * `RETENTION_DAYS`. The AWS SDK reads region, credentials and endpoints.
   */
  static fromEnv(env: Record<string, string | undefined> = process.env): Leases {
    const table = env["ENTITIES_TABLE"];
    if (!table) throw new LeaseInvalid(`ENTITIES_TABLE: is not set ${WHERE}`);
    const days = env["RETENTION_DAYS"];
    const retentionDays = days ? Number(days) : undefined;
    if (retentionDays !== undefined && !Number.isInteger(retentionDays)) {
      throw new LeaseInvalid(`RETENTION_DAYS: "${days}" is not a whole number from 1 to 3650`);
    }
    const lambda = env["AWS_LAMBDA_FUNCTION_NAME"];
    const holder = lambda ? `${lambda} ${env["AWS_LAMBDA_LOG_STREAM_NAME"] ?? ""}`.trim() : program();
    const inboxTable = env["INBOX_TABLE"] || undefined;
    const queueUrl = env["QUEUE_URL"] || undefined;
    return new Leases({ table, inboxTable, queueUrl, holder, ...(retentionDays !== undefined && { retentionDays }) });
  }

  /**
   * Acquires the lease of `key`, and renews it until it is released. With `await using`, it is released at the end of
   * the block. A lease that is forgotten is no longer renewed, and expires.
   */
  async acquire(key: string, terms: Terms & { renew?: boolean } = {}): Promise<Lease> {
    return (await this.#granted(key, terms)).lease;
  }

  /**
   * Acquires the lease of `key`, runs `work`, and releases the lease. Success proves that no other holder had the lease
   * meanwhile. If the lease is lost, `lease.signal` is aborted, and the call fails with `LeaseLost` at once.
   */
  async run<T>(key: string, work: (lease: Lease) => Promise<T> | T, terms: Terms = {}): Promise<T> {
    checkWork(work);
    return this.#work(key, terms, async (lease) => {
      const value = await work(lease);
      return async () => {
        await lease.release();
        return value;
      };
    });
  }

  /** As `run`, but returns `undefined` at once if another holder has the lease, or if waiting deliveries go first. */
  async runUnlessHeld<T>(key: string, work: (lease: Lease) => Promise<T> | T, terms: Terms = {}): Promise<T | undefined> {
    checkWork(work);
    let isGranted = false;
    const granted = (lease: Lease) => {
      isGranted = true;
      return work(lease);
    };
    try {
      return await this.run(key, granted, { ...terms, wait: 0 });
    } catch (failed) {
      if (failed instanceof LeaseContended && !isGranted) return undefined;
      throw failed;
    }
  }

  /**
   * As `run`, and makes the writes that `work` returns in one transaction with the release. Fails with `NotCommitted` if
   * a condition of the writes does not hold.
   */
  async commit<T>(
    key: string,
    work: (lease: Lease) => Promise<[T, TransactWriteItem[]]> | [T, TransactWriteItem[]],
    terms: Terms = {},
  ): Promise<T> {
    checkWork(work);
    return this.#work(key, terms, async (lease) => {
      const pair = await work(lease);
      if (!Array.isArray(pair)) throw new LeaseInvalid("the work of `commit` returns [value, writes], and did not");
      const [value, writes] = pair;
      return async () => {
        await lease.commit(writes);
        return value;
      };
    });
  }

  /**
   * Runs `work` for each due tick of the job `name` that no other call has started, on whatever host and in whatever
   * language. Returns what `work` returned: usually nothing or one value. Call it more often than the schedule says.
   *
   * If `work` throws, the tick is recorded as failed and does not run again. If the process dies, the lease is lost, or
   * `work` throws after the options' signal was aborted, the tick counts as crashed, and `onCrash` decides.
   */
  async once<T>(name: string, options: JobOptions, work: (run: JobRun) => Promise<T> | T): Promise<T[]> {
    checkNames(options, JOB_OPTIONS);
    checkWork(work);
    const { schedule, zone, onCrash, length, signal } = options;
    const start = { job: name, schedule, zone, onCrash, leaseMs: millis("length", length) };
    const send = await this.#connected();
    signal?.throwIfAborted();
    return runJob(new Machine(this.#core, send, name, start), name, signal, work);
  }

  /** Reads who has the lease of `key`. */
  async lookup(key: string): Promise<SeenLease> {
    checkKey(key);
    const send = await this.#connected();
    const { is: _, until, ...seen } = await new Machine(this.#core, send, key, { key, look: true }).begin();
    const filled = Object.fromEntries(Object.entries(seen).filter(([, value]) => value !== null));
    return { ...(filled as Omit<SeenLease, "until">), ...(until && { until: new Date(until) }) };
  }

  /** Connects with the first request. After a failure, the next request tries again. */
  #connected(): Promise<Send> {
    return (this.#send ??= this.#sender().catch((failed) => {
      this.#send = undefined;
      throw failed;
    }));
  }

  async #granted(key: string, terms: Terms & { renew?: boolean }) {
    checkNames(terms, TERMS);
    checkKey(key);
    const { length, wait, within, signal, renew = true } = terms;
    const start = {
      key,
      leaseMs: millis("length", length),
      waitMs: millis("wait", wait),
      // A caller's time that has already ended.
      withinMs: millis("within", within !== undefined && within < 0 ? 0 : within),
      renew,
    };
    const send = await this.#connected();
    signal?.throwIfAborted();
    const machine = new Machine(this.#core, send, key, start);
    const abort = () => (machine.isGranted ? machine.abort(signal!.reason) : machine.abandon(signal!.reason));
    signal?.addEventListener("abort", abort, { once: true });
    machine.onEnd = () => signal?.removeEventListener("abort", abort);
    const { token, id } = await machine.begin();
    if (signal?.aborted) {
      // Since the lease was granted, so that nobody else would release it.
      await machine.command({ do: "release" }).catch(() => {});
      throw signal.reason;
    }
    return { lease: new Lease(machine, key, token, id), machine };
  }

  /** Runs `work` under the lease, and then what it returns. After an error, releases the lease. */
  async #work<T>(key: string, terms: Terms, work: (lease: Lease) => Promise<() => Promise<T>>): Promise<T> {
    const { lease, machine } = await this.#granted(key, terms);
    try {
      const end = await Promise.race([work(lease), machine.lost()]);
      return await end();
    } catch (failed) {
      // The caller gets the work's error, which matters more than an error of the release. If the caller's time has
      // ended, the core already releases the lease.
      if (!machine.error && !machine.isOver) await lease.release().catch(() => {});
      await machine.ended();
      throw failed;
    }
  }
}

function program(): string {
  return basename(process.argv[1] ?? "node");
}

function checkNames<T>(given: T, names: Names<T>) {
  const reason = misnamed(given, names);
  if (reason !== undefined) throw new LeaseInvalid(reason);
}

function checkKey(key: string) {
  if (hasHalfCharacter(key)) throw new LeaseKeyInvalid("the key has a half of a surrogate pair, which is no character");
}

/** Checks before a lease is taken or a tick is started, so that a mistake leaves no trace. */
function checkWork(work: unknown) {
  if (/GeneratorFunction$/.test(work?.constructor?.name ?? "")) {
    throw new LeaseInvalid("the work is a generator, whose body would not run: begin it without `*`");
  }
  if (typeof work !== "function") throw new LeaseInvalid(`the work is ${work === null ? "null" : typeof work}, and must be a function`);
}

/** Returns whole milliseconds, as the core takes them. */
function millis(term: string, time: number | undefined): number | undefined {
  if (time === undefined) return undefined;
  if (!(time >= 0)) throw new LeaseInvalid(`the term ${term} must be a number of milliseconds, not ${time}`);
  return Math.min(Math.floor(time), Number.MAX_SAFE_INTEGER);
}
