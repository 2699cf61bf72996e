// Holds leases, and answers a delivery, in one line: the same in each runtime, and bundled.

import { createHmac } from "node:crypto";
import { LeaseContended, LeaseInvalid, Leases } from "webhook-serializer";
import { answerWith, commit } from "webhook-serializer/receiver";

const leases = Leases.fromEnv();
const held = await leases.acquire("test/runtimes");
const refused = await leases.run("test/runtimes", () => "ran", { wait: 0 }).catch((error) => error);
await held.release();
const none = undefined as any;
const invalid = [
  await leases.run("test/runtimes", none).catch((error) => error),
  await leases.once("runtimes", { schedule: "every minute" }, none).catch((error) => error),
];
const isHeld = (await leases.lookup("test/runtimes")).held;
const token = await leases.run("test/runtimes", (lease) => lease.token);

const key = Buffer.from("a secret");
const receiver = answerWith({ secret: `whsec_${key.toString("base64")}` }, ([delivery]) => {
  return commit([{ Delete: { TableName: "totals", Key: { order: { S: delivery!.entityKey } } } }]);
});
const [id, time, body] = ["1", Math.floor(Date.now() / 1000), "{}"];
const headers = {
  "webhook-id": id,
  "webhook-timestamp": String(time),
  "webhook-signature": `v1,${createHmac("sha256", key).update(`${id}.${time}.${body}`).digest("base64")}`,
  "serializer-delivery-id": "1",
  "serializer-source": "shop",
  "serializer-topic": "orders/paid",
  "serializer-entity-key": "shop/order/1",
  "serializer-fencing-token": "1",
  "serializer-sequence": "1",
  "serializer-attempt": "1",
  "serializer-age": "newer",
};
const answer = await receiver.fetch(new Request("http://localhost/", { method: "POST", headers, body }));
const [isContended, isGranted] = [refused instanceof LeaseContended, token > held.token];
const isInvalid = invalid.every((error) => error instanceof LeaseInvalid && /must be a function/.test(error.message)) && !isHeld;
console.log(JSON.stringify({ isContended, isGranted, isInvalid, status: answer.status, answer: await answer.json() }));
