import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { LeaseInvalid } from "./errors.js";

/** Returns the table of each write. */
export function tablesOf(writes: TransactWriteItem[]): string[] {
  if (!Array.isArray(writes)) throw new LeaseInvalid(`the writes are ${typeof writes}, not a list of TransactItems`);
  const members = ({ Put, Update, Delete, ConditionCheck }: TransactWriteItem) => Put ?? Update ?? Delete ?? ConditionCheck;
  return writes.map((write) => members(write)?.TableName ?? "");
}
