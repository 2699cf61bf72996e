import type { CoreEvent } from "./core.js";

/** Why a lease was not granted, was lost, or may not have been released. Each subclass calls for another reaction. */
export class LeaseError extends Error {
  // Written out in each class, because bundlers rename classes.
  override name = "LeaseError";
}

/** Another holder still had the lease when the wait ended. The work was not started. Try again later. */
export class LeaseContended extends LeaseError {
  override name = "LeaseContended";

  constructor(
    message: string,
    /** The holder, as operators see it. */
    readonly by: string,
    /** When the other holder's lease expires unless it is renewed. */
    readonly until: Date,
  ) {
    super(message);
  }
}

/** The lease was lost, and another holder may already work. Stop the work. */
export class LeaseLost extends LeaseError {
  override name = "LeaseLost";
}

/** The caller's time (`within`) ended before the work was done. The lease was released. */
export class LeaseOutOfTime extends LeaseError {
  override name = "LeaseOutOfTime";
}

/** DynamoDB throttles. The work was not started. Try again later and less often. */
export class LeaseThrottled extends LeaseError {
  override name = "LeaseThrottled";
}

/** DynamoDB did not answer. The work was not started. */
export class LeaseUnreachable extends LeaseError {
  override name = "LeaseUnreachable";
}

/** DynamoDB did not confirm the release or commit. The work is done, but its last write may not have landed. */
export class LeaseUnknown extends LeaseError {
  override name = "LeaseUnknown";
}

/** DynamoDB or a row refuses the request. A retry does not help. */
export class LeaseRefused extends LeaseError {
  override name = "LeaseRefused";

  constructor(
    message: string,
    readonly reason: "missing_table" | "denied" | "unreadable_row" | "other_schedule" | "refused",
  ) {
    super(message);
  }
}

/** The key, the terms, the job, the settings or the writes are invalid. Nothing was sent. */
export class LeaseInvalid extends LeaseError {
  override name = "LeaseInvalid";
}

/** The key is invalid. Keys often have parts that a caller chose; all else that is invalid is the program's own mistake. */
export class LeaseKeyInvalid extends LeaseInvalid {
  override name = "LeaseKeyInvalid";
}

/** A condition of the commit's writes did not hold. Nothing was written. */
export class NotCommitted extends LeaseError {
  override name = "NotCommitted";

  constructor(
    message: string,
    /** The numbers of the writes whose conditions did not hold, from 0. */
    readonly refused: number[],
  ) {
    super(message);
  }
}

/** @internal */
export function errorOf(event: CoreEvent): LeaseError {
  const message = event.message ?? event.is;
  switch (event.is) {
    case "contended":
      return new LeaseContended(message, event.by, new Date(event.until));
    case "lost":
      return new LeaseLost(message);
    case "out_of_time":
      return new LeaseOutOfTime(message);
    case "throttled":
      return new LeaseThrottled(message);
    case "unreachable":
      return new LeaseUnreachable(message);
    case "unknown":
      return new LeaseUnknown(message);
    case "invalid_key":
      return new LeaseKeyInvalid(message);
    case "not_committed":
      return new NotCommitted(message, event.refused);
    case "missing_table":
    case "denied":
    case "unreadable_row":
    case "other_schedule":
    case "refused":
      return new LeaseRefused(message, event.is);
    default:
      return new LeaseInvalid(message);
  }
}
