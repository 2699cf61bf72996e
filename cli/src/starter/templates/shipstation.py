# ShipStation's webhooks name a URL, but no order. This asks the URL for its shipments or orders, and posts an event for
# each to the source `parcels`, which finds the order's key in it. It needs PARCELS_URL and PARCELS_SECRET, and
# SHIPSTATION_KEY: API key and secret with `:` between them, in base64. With SHIPMENTS, a file answers in place of
# ShipStation.
import base64
import hashlib
import hmac
import json
import os
import time
from pathlib import Path
from urllib.request import HTTPRedirectHandler, Request, build_opener

SHIPSTATION = "https://ssapi.shipstation.com/"


class NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


opener = build_opener(NoRedirects)


def relay(webhook):
    """Raises an error if an event could not be posted: the serializer then sends the webhook again."""
    page = pages = 1
    while page <= pages:
        found = read(webhook["resource_url"], page)
        for shipment in found.get("shipments", []):
            post(webhook["resource_type"], shipment["shipmentId"], shipment)
        for order in found.get("orders", []):
            post(webhook["resource_type"], order["orderId"], order)
        page, pages = page + 1, found["pages"]


def read(resource, page):
    if "SHIPMENTS" in os.environ:
        return json.loads(Path(os.environ["SHIPMENTS"]).read_text())
    # The webhook is not signed: another host must not get the key.
    if not resource.startswith(SHIPSTATION):
        raise ValueError(f"{resource[:60]} is not ShipStation's")
    url = f"{resource}{'&' if '?' in resource else '?'}page={page}"
    request = Request(url, headers={"authorization": f"Basic {os.environ['SHIPSTATION_KEY']}"})
    with opener.open(request, timeout=20) as answer:
        return json.load(answer)


def post(kind, number, data):
    # The same shipment or order has the same id: relayed twice, its event is a repeat.
    name, timestamp = f"shipstation-{kind}-{number}", str(int(time.time()))
    body = json.dumps({"type": kind, "data": data})
    key = base64.b64decode(os.environ["PARCELS_SECRET"].removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{name}.{timestamp}.{body}".encode(), hashlib.sha256)).decode()
    headers = {
        "content-type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }
    opener.open(Request(os.environ["PARCELS_URL"], body.encode(), headers), timeout=20).close()
