# Gets what the handler `forward` posts: each delivery once, and those of one order in sequence.
import json # RELAY
import os

from fastapi import FastAPI
from shipstation import relay # RELAY
from webhook_serializer.receiver import apply_once, memory


def apply(delivery, transaction):
    if delivery.source == "shipstation-v1": # RELAY
        relay(json.loads(delivery.body)) # RELAY
    print(f"{delivery.entity_key} {delivery.topic}: {len(delivery.body)} bytes", flush=True)


# `memory()` forgets everything when this process ends; `postgres(connect)` remembers in your database: docs/forward.md.
receiver = apply_once(apply, secret=os.environ["SECRET"], store=memory())
app = FastAPI()
app.add_route("/webhooks", receiver.starlette, methods=["POST"])
