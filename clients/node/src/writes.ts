import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";

/** Returns the table of each write. */
export function tablesOf(writes: TransactWriteItem[]): string[] {
  const members = ({ Put, Update, Delete, ConditionCheck }: TransactWriteItem) => Put ?? Update ?? Delete ?? ConditionCheck;
  return writes.map((write) => members(write)?.TableName ?? "");
}
