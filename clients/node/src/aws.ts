// Sends the core's calls with the AWS SDK.

import {
  DeleteItemCommand,
  DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  TransactWriteItemsCommand,
  UpdateItemCommand,
  type TransactWriteItem,
} from "@aws-sdk/client-dynamodb";
import type { SQSClient } from "@aws-sdk/client-sqs";
import type { Call, Reply } from "./core.js";
import { LeaseInvalid } from "./errors.js";

export type Send = (call: Call, writes: TransactWriteItem[], abortSignal: AbortSignal) => Promise<Reply>;

const COMMANDS: Record<string, new (input: any) => any> = {
  DeleteItem: DeleteItemCommand,
  GetItem: GetItemCommand,
  PutItem: PutItemCommand,
  TransactWriteItems: TransactWriteItemsCommand,
  UpdateItem: UpdateItemCommand,
};

/** Returns a function that sends calls. Without a client, it creates one that the SDK configures from the environment. */
export async function sender(
  dynamodb: DynamoDBClient | undefined,
  sqs: SQSClient | undefined,
  queueUrl: string | undefined,
): Promise<Send> {
  // The core repeats requests itself, and knows which may be repeated.
  const table = dynamodb ?? new DynamoDBClient({ maxAttempts: 1 });
  if (dynamodb) await checkRetries(dynamodb, "dynamodb");
  else checkEndpoint("AWS_ENDPOINT_URL_DYNAMODB");
  await checkRegion(table, "dynamodb");
  const queue = queueUrl === undefined ? undefined : await queueSender(sqs);
  return async ({ service, operation, input }, writes, abortSignal) => {
    let date: number | undefined;
    try {
      if (service === "sqs") return { ok: await queue!(input, abortSignal) };
      const command = new COMMANDS[operation]!(withWrites(input, writes));
      // Innermost, so that it sees replies that the SDK turns into errors.
      command.middlewareStack.add(
        (next: any) => async (args: any) => {
          const sent = await next(args);
          const time = Date.parse(sent.response?.headers?.date ?? "");
          if (!Number.isNaN(time)) date = time;
          await readWhole(sent.response);
          return sent;
        },
        { step: "deserialize", priority: "low", name: "wholeReply" },
      );
      const { $metadata, ...ok } = (await table.send(command, { abortSignal })) as any;
      return { ok, date };
    } catch (failed: any) {
      const { name, message, $metadata, Item, CancellationReasons } = failed ?? {};
      const status = $metadata?.httpStatusCode ?? 0;
      return { error: { name, message, status, item: Item, reasons: CancellationReasons }, date };
    }
  };
}

/**
 * Reads the reply's body, and fails if the connection closes within it. The SDK may take a part of a body for a reply
 * without content.
 */
async function readWhole(response: any) {
  const { body, headers = {} } = response ?? {};
  if (typeof body?.[Symbol.asyncIterator] !== "function") return;
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  const whole = Buffer.concat(parts);
  const told = Number(headers["content-length"]);
  if (whole.length < told) throw new Error(`the reply ended after ${whole.length} of ${told} bytes`);
  response.body = new Uint8Array(whole);
}

/** With an address that is none, the SDK fails at each request as if the network were down. */
function checkEndpoint(service: string) {
  for (const name of [service, "AWS_ENDPOINT_URL"]) {
    const url = process.env[name];
    if (url && !/^https?:\/\/[^/]/.test(url)) {
      throw new LeaseInvalid(`${name}: "${url}" is not a URL that begins with http:// or https://`);
    }
  }
}

/** If the SDK repeats a request that has landed, DynamoDB refuses the repeat. The core would take that for the answer. */
async function checkRetries({ config }: DynamoDBClient | SQSClient, name: string) {
  if (typeof config?.maxAttempts !== "function") throw new LeaseInvalid(`${name} is not a client of the AWS SDK for JavaScript`);
  if ((await config.maxAttempts()) !== 1) {
    throw new LeaseInvalid(
      `the ${name} client retries by itself, while a lease's requests must not be repeated: ` +
        "create it with maxAttempts: 1, or give none",
    );
  }
}

/** The SDK looks for the region only when it sends a request, and would then fail as if the network were down. */
async function checkRegion({ config }: DynamoDBClient | SQSClient, name: string) {
  await config.region().catch((failed: unknown) => {
    const reason = failed instanceof Error ? failed.message : String(failed);
    throw new LeaseInvalid(
      `the ${name} client has no region: set AWS_REGION, or give a client that has one (the AWS SDK says: ${reason})`,
    );
  });
}

async function queueSender(given: SQSClient | undefined) {
  const { SQSClient, SendMessageCommand } = await import("@aws-sdk/client-sqs").catch(() => {
    throw new LeaseInvalid("a queue is given, but the package @aws-sdk/client-sqs is missing: npm install @aws-sdk/client-sqs");
  });
  const sqs = given ?? new SQSClient({ maxAttempts: 1 });
  if (given) await checkRetries(given, "sqs");
  else checkEndpoint("AWS_ENDPOINT_URL_SQS");
  await checkRegion(sqs, "sqs");
  return (input: any, abortSignal: AbortSignal) => sqs.send(new SendMessageCommand(input), { abortSignal });
}

/** Puts the caller's writes in their places, and bytes where the core has base64. */
function withWrites(input: any, writes: TransactWriteItem[]): any {
  if (input.TransactItems) {
    const item = (item: any) => ("write" in item ? writes[item.write] : withBytes(item));
    return { ...input, TransactItems: input.TransactItems.map(item) };
  }
  return withBytes(input);
}

function withBytes(input: any): any {
  if (Array.isArray(input)) return input.map(withBytes);
  if (typeof input !== "object" || input === null) return input;
  const entries = Object.entries(input).map(([name, value]) => [
    name,
    name === "B" && typeof value === "string" ? Uint8Array.from(Buffer.from(value, "base64")) : withBytes(value),
  ]);
  return Object.fromEntries(entries);
}
