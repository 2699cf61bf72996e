// The Lambda function that the handler `invoke` calls, with an order's next delivery. In Lambda's console, its handler
// is `function.handler`, once it is JavaScript.
import { relay } from "./shipstation.mts"; // RELAY
 // RELAY
interface Event {
  source: string;
  entity_key: string;
  deliveries: { id: string; topic: string; body: string; body_is_base64: boolean }[];
}

export async function handler(event: Event) {
  // A delivery can come twice: apply each `id` once, or put DynamoDB writes into the answer (docs/invoke.md).
  if (event.source === "shipstation-v1") for (const { body } of event.deliveries) await relay(JSON.parse(body)); // RELAY
  for (const { topic, body } of event.deliveries) console.log(`${event.entity_key} ${topic}: ${body.length} characters`);
  return { outcome: "done" };
}
