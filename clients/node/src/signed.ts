// What the handler `forward` posts: its signature, and the deliveries of a request.

import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE = 300; // seconds
/** The signed ids of lists begin with it. */
const GROUP = "group:";

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
    /** A `cause` is passed to the receiver's `onError`. */
    options?: ErrorOptions,
  ) {
    super(reason, options);
  }
}

/** A request's headers, from `node:http` or `fetch`. */
export type RequestHeaders = Headers | Record<string, string | string[] | undefined>;

function header(headers: RequestHeaders, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  if (typeof value !== "string") throw new Refused(400, `there is no ${name}`);
  return value;
}

/** @internal */
export function keyOf(secret: string): Buffer {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  // Anybody can sign with an empty key.
  if (key.length === 0) throw new TypeError("a secret of the receiver is empty, or not in base64");
  return key;
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
    const expected = createHmac("sha256", keyOf(secret)).update(`${id}.${timestamp}.`).update(body).digest();
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
