# The Lambda function that the handler `invoke` calls, with an order's next delivery. In Lambda's console, its handler
# is `function.handler`.


def handler(event, context):
    # A delivery can come twice: apply each `id` once, or put DynamoDB writes into the answer (docs/invoke.md).
    for delivery in event["deliveries"]:
        print(f"{event['entity_key']} {delivery['topic']}: {len(delivery['body'])} characters", flush=True)
    return {"outcome": "done"}
