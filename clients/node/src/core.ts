// The core: the lease code of the Rust library, in WebAssembly. It imports nothing and performs no I/O.

import { randomBytes } from "node:crypto";
import { brotliDecompressSync } from "node:zlib";
import { LeaseInvalid } from "./errors.js";
import wasm from "./wasm.js";

interface Exports {
  memory: WebAssembly.Memory;
  input(length: number): number;
  answer_length(): number;
  client(): number;
  start(client: number): number;
  step(session: number): number;
  end(session: number): void;
}

/** A request that the core asks for. */
export interface Call {
  id: number;
  service: "dynamodb" | "sqs";
  operation: string;
  input: any;
}

/** What came of a call. */
export interface Reply {
  ok?: unknown;
  error?: { name?: string; message?: string; status: number; item?: unknown; reasons?: unknown };
  /** The reply's `Date` in milliseconds. */
  date?: number;
}

/** An event of a session, such as `granted`, or an error with a `message`. */
export interface CoreEvent {
  is: string;
  message?: string;
  [more: string]: any;
}

/** What to do after a step. */
export interface Step {
  calls: Call[];
  cancelled: number[];
  events: CoreEvent[];
  wake: number | null;
  over: boolean;
}

let loaded: Exports | undefined;

function core(): Exports {
  if (!loaded) {
    const module = new WebAssembly.Module(brotliDecompressSync(Buffer.from(wasm, "base64")));
    loaded = new WebAssembly.Instance(module).exports as unknown as Exports;
  }
  return loaded;
}

function give(input: unknown) {
  const bytes = new TextEncoder().encode(JSON.stringify(input, withBase64));
  const at = core().input(bytes.length);
  new Uint8Array(core().memory.buffer, at, bytes.length).set(bytes);
}

function take(at: number): any {
  const bytes = new Uint8Array(core().memory.buffer, at >>> 0, core().answer_length());
  const answer = JSON.parse(new TextDecoder().decode(bytes));
  if (answer.invalid) throw new LeaseInvalid(answer.invalid);
  return answer;
}

/** Replaces bytes by base64. `this` has them even if the value is a buffer, which has `toJSON`. */
function withBase64(this: any, name: string, value: unknown) {
  const bytes = this[name];
  return bytes instanceof Uint8Array ? Buffer.from(bytes).toString("base64") : value;
}

export class CoreClient {
  readonly #number: number;

  constructor(settings: object) {
    give(settings);
    this.#number = take(core().client());
  }

  start(start: object): CoreSession {
    give(start);
    return new CoreSession(take(core().start(this.#number)));
  }
}

export class CoreSession {
  readonly #number: number;

  constructor(number: number) {
    this.#number = number;
  }

  step(replies: [number, Reply][], commands: object[]): Step {
    const entropy = randomBytes(32).toString("hex");
    give({ now: Date.now(), monotonic: performance.now(), entropy, replies, commands });
    return take(core().step(this.#number));
  }

  end() {
    core().end(this.#number);
  }
}
