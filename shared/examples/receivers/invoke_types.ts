// Made from docs/invoke.schema.json by `cargo run -p tests --bin invoke-types`.

/** One webhook. */
export interface Delivery {
  /** The same for every attempt and redrive of a delivery, another for any other delivery of any source, and for each time that a person has it run again. Apply it once. */
  id: string;
  /** What the sender calls it; unique with the source. */
  delivery_id: string;
  /** What happened, in the sender's words. */
  topic: string;
  /** The source's provider, such as shopify. */
  provider: string | null;
  /** Its place among the entity's deliveries. There are gaps. */
  sequence: number;
  /** Which attempt this is, from 1. */
  attempt: number;
  /** How often an operator put it back. */
  redrive: number;
  /** The fencing token under which it was applied before, where a person has it run again. */
  run_before: number | null;
  /** For how many older ones it stands, with deliver = "latest". */
  superseded: number;
  /** How its event time stands to the newest that was applied of its topic family. */
  age: "newer" | "same-time" | "older" | "unknown";
  /** When it was accepted, RFC 3339. */
  received_at: string;
  /** When it came into its inbox, RFC 3339, where the tables could not be reached when it was accepted: others of its order may have been handled before it. */
  deferred_until: string | null;
  /** When it happened by the sender's clock, RFC 3339. */
  event_time: string | null;
  /** What the sender calls the body's form, such as application/json. */
  content_type: string | null;
  /** The body as it came: its text, or base64. */
  body: string;
  /** Whether the body is in base64, because it is no UTF-8 or has many control characters. */
  body_is_base64: boolean;
  /** Where its trace goes on, as W3C Trace Context has it. Only where the worker sends traces. */
  traceparent?: string;
}

/** What one start of a handler is about, version 1: one delivery, or several of one order in a row. Fields may be added; a version that takes one away or changes its meaning has another number. */
export interface Deliveries {
  version: 1;
  /** The source's name in the sources document. */
  source: string;
  /** Whose deliveries they are: what order is kept for, such as shopify/order/450789469. */
  entity_key: string;
  /** Greater than that of any start before it for this entity. Refuse one below the newest that you have seen. */
  fencing_token: number;
  /** The oldest first, without a hole. */
  deliveries: Delivery[];
}

/** What a function answers, for all that it was called with. */
export interface Answer {
  /** done: it is applied. retry: try again. reject: it will never succeed; set it aside. */
  outcome: "done" | "retry" | "reject";
  /** With retry: in so many seconds, at most a day. Without it, as the source's retry policy says. */
  after?: number | null;
  /** With done: writes as in DynamoDB's TransactItems. They land in the transaction that settles the deliveries. */
  commit?: Record<string, unknown>[];
  /** With retry and reject: why, in a few words for people. No secrets and no customers' data. */
  error?: string | null;
}
