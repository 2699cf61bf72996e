// Does what a session of the core asks for, and reports to it what came of it.

import process from "node:process";
import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import type { Send } from "./aws.js";
import type { Call, CoreClient, CoreEvent, CoreSession, Reply } from "./core.js";
import { errorOf, LeaseInvalid, LeaseLost, type LeaseError } from "./errors.js";

/** Events after which the lease is still held, although a command failed. */
const HARMLESS = ["invalid", "not_committed"];

interface Waiter {
  resolve(event: CoreEvent): void;
  reject(reason: unknown): void;
}

export class Machine {
  onEnd = () => {};
  readonly #controller = new AbortController();
  readonly #session: CoreSession;
  readonly #sent = new Map<number, AbortController>();
  readonly #watchers: ((error: LeaseError) => void)[] = [];
  readonly #ended: Promise<void>;
  #resolveEnded = () => {};
  #commands: Promise<unknown> = Promise.resolve();
  #writes: TransactWriteItem[] = [];
  #waiter: Waiter | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isAbandoned = false;
  #isGranted = false;
  #isOver = false;
  #error: LeaseError | undefined;

  constructor(
    client: CoreClient,
    private readonly send: Send,
    private readonly key: string,
    start: object,
  ) {
    this.#session = client.start(start);
    this.#ended = new Promise((resolve) => (this.#resolveEnded = resolve));
  }

  /** Aborted once the lease is lost, or the caller gives up. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the lease ended early, if it did. */
  get error(): LeaseError | undefined {
    return this.#error;
  }

  /** Whether a lease was granted, even if nobody has heard of it yet. */
  get isGranted(): boolean {
    return this.#isGranted;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Rejects once the lease has ended early. */
  lost(): Promise<never> {
    const lost = new Promise<never>((_, reject) => {
      if (this.#error) reject(this.#error);
      else this.#watchers.push(reject);
    });
    // Whoever lost the race against the work need not handle it.
    lost.catch(() => {});
    return lost;
  }

  /** Resolves once the session is over: nothing more is sent. */
  ended(): Promise<void> {
    return this.#ended;
  }

  /** Begins the session, and returns its first event. */
  begin(): Promise<CoreEvent> {
    return this.#next(() => this.#step());
  }

  /** Runs a command after earlier ones. */
  command(command: object, writes: TransactWriteItem[] = []): Promise<CoreEvent> {
    const done = this.#commands.then(() => {
      if (this.#error) throw this.#error;
      if (this.#isOver) throw new LeaseInvalid(`the lease of ${this.key} was released before`);
      this.#writes = writes;
      return this.#next(() => this.#step([], [command]));
    });
    this.#commands = done.catch(() => {});
    return done;
  }

  /** Aborts the signal. The caller's work should then stop, and the lease be released. */
  abort(reason: unknown) {
    this.#controller.abort(reason);
  }

  /** Gives up the wait for the lease. The core releases a lease that is granted all the same. */
  abandon(reason: unknown) {
    this.#isAbandoned = true;
    const waiter = this.#take();
    this.#step([], [{ do: "abandon" }]);
    waiter?.reject(reason);
  }

  /** Drops the session. A lease that it holds lasts until it expires. */
  drop() {
    this.#end();
  }

  #next(begin: () => void): Promise<CoreEvent> {
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
      begin();
    });
  }

  #take(): Waiter | undefined {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    return waiter;
  }

  #step(replies: [number, Reply][] = [], commands: object[] = []) {
    if (this.#isOver) return;
    clearTimeout(this.#timer);
    try {
      this.#follow(this.#session.step(replies, commands));
    } catch (failed) {
      this.#fail(new LeaseLost(`the lease of ${this.key} can no longer be renewed: ${failed}`));
      this.#end();
    }
  }

  #follow({ calls, cancelled, events, wake, over }: ReturnType<CoreSession["step"]>) {
    for (const id of cancelled) this.#sent.get(id)?.abort();
    if (over) this.#end();
    // A release is on its way before the work hears that its time has ended.
    for (const call of calls) void this.#call(call);
    for (const event of events) this.#handle(event);
    if (wake !== null && !over) {
      this.#timer = setTimeout(() => this.#step(), wake);
      // Neither a lease whose holder waits for nothing, nor the search for a lease that a request without an answer may
      // have got, keeps the process alive.
      const isReleasing = (this.#error && this.#isGranted) || (this.#isAbandoned && this.#sent.size > 0);
      if (!this.#waiter && !isReleasing) this.#timer.unref();
    }
  }

  #handle(event: CoreEvent) {
    if (event.is === "warning") return process.emitWarning(event.message ?? "", "LeaseWarning");
    if (this.#isAbandoned) return;
    if (event.is === "granted" || event.is === "due") this.#isGranted = true;
    if (event.message === undefined) return this.#take()?.resolve(event);
    const error = errorOf(event);
    if (HARMLESS.includes(event.is)) return this.#take()?.reject(error);
    this.#fail(error);
  }

  #fail(error: LeaseError) {
    this.#error = error;
    this.#controller.abort(error);
    this.#take()?.reject(error);
    for (const watcher of this.#watchers.splice(0)) watcher(error);
  }

  async #call(call: Call) {
    const abort = new AbortController();
    this.#sent.set(call.id, abort);
    const reply = await this.send(call, this.#writes, abort.signal);
    this.#sent.delete(call.id);
    if (!abort.signal.aborted) this.#step([[call.id, reply]]);
  }

  #end() {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    for (const abort of this.#sent.values()) abort.abort();
    this.#session.end();
    this.onEnd();
    this.#resolveEnded();
  }
}
