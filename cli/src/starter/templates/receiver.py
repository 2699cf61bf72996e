# Gets what the handler `forward` posts: each delivery once, and those of one order in sequence.
import os

from fastapi import FastAPI
from webhook_serializer.receiver import apply_once, memory


def apply(delivery, transaction):
    print(f"{delivery.entity_key} {delivery.topic}: {len(delivery.body)} bytes", flush=True)


# `memory()` forgets everything when this process ends; `postgres(connect)` remembers in your database: docs/forward.md.
receiver = apply_once(apply, secret=os.environ["SECRET"], store=memory())
app = FastAPI()
app.add_route("/webhooks", receiver.starlette, methods=["POST"])
