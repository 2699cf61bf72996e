# The Lambda function that the handler `invoke` calls, with an order's next delivery. In Lambda's console, its handler
# is `function.handler`.
import json # RELAY
 # RELAY
from shipstation import relay # RELAY


def handler(event, context):
    # A delivery can come twice: apply each `id` once, or put DynamoDB writes into the answer (docs/invoke.md).
    for delivery in event["deliveries"]:
        if event["source"] == "shipstation-v1": # RELAY
            relay(json.loads(delivery["body"])) # RELAY
        print(f"{event['entity_key']} {delivery['topic']}: {len(delivery['body'])} characters", flush=True)
    return {"outcome": "done"}
