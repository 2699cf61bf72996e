// Gets what the handler `forward` posts: each delivery once, and those of one order in sequence.
import { createServer } from "node:http";
import { applyOnce, memory } from "webhook-serializer/receiver";

// `memory()` forgets everything when this process ends; `postgres(pool)` remembers in your database: docs/forward.md.
const options = { secret: process.env.SECRET!, store: memory() };
const receiver = applyOnce(options, async (delivery) => {
  console.log(`${delivery.entityKey} ${delivery.topic}: ${delivery.body.length} bytes`);
});
createServer(receiver.node).listen(Number(process.env.PORT), "127.0.0.1");
