// Gets what the handler `forward` posts: each delivery once, and those of one order in sequence.
import express from "express";
import { applyOnce, memory } from "webhook-serializer/receiver";
import { relay } from "./shipstation.mts"; // RELAY

// `memory()` forgets everything when this process ends; `postgres(pool)` remembers in your database: docs/forward.md.
const options = { secret: process.env.SECRET!, store: memory() };
const receiver = applyOnce(options, async (delivery) => {
  if (delivery.source === "shipstation-v1") await relay(JSON.parse(delivery.body.toString())); // RELAY
  console.log(`${delivery.entityKey} ${delivery.topic}: ${delivery.body.length} bytes`);
});
const app = express();
// In front of any express.json(): the signature covers the body's bytes.
app.post("/webhooks", receiver.node);
app.listen(Number(process.env.PORT), "127.0.0.1", () => console.log(`listens on port ${process.env.PORT}`));
