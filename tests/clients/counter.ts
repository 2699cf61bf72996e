// A function behind `forward` that only counts, by the writes of its answers. It is killed at any moment.

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { answerWith, commit } from "webhook-serializer/receiver";

const receiver = answerWith({ secret: process.env.SECRET! }, async (deliveries) => {
  await sleep(50 * Math.random());
  const writes = deliveries.map(({ deliveryId }) => ({
    Update: {
      TableName: "totals",
      Key: { order: { S: deliveryId } },
      UpdateExpression: "ADD times :one",
      ExpressionAttributeValues: { ":one": { N: "1" } },
    },
  }));
  return commit(writes);
});
createServer(receiver.node).listen(Number(process.env.PORT), "127.0.0.1");
