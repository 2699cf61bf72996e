import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { LeaseInvalid } from "./errors.js";

/** Returns whether a text has a half of a surrogate pair, which JSON can carry, and UTF-8 cannot. */
export function hasHalfCharacter(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}

/** Returns the table of each write. */
export function tablesOf(writes: TransactWriteItem[]): string[] {
  if (!Array.isArray(writes)) throw new LeaseInvalid(`the writes are ${typeof writes}, not a list of TransactItems`);
  const members = ({ Put, Update, Delete, ConditionCheck }: TransactWriteItem) => Put ?? Update ?? Delete ?? ConditionCheck;
  const tables = writes.map((write) => members(write)?.TableName ?? "");
  const broken = tables.findIndex(hasHalfCharacter);
  if (broken >= 0) throw new LeaseInvalid(`write ${broken} names no table: a half of a surrogate pair is no character`);
  return tables;
}
