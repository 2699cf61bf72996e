// ShipStation's webhooks name a URL, but no order. This asks the URL for its shipments or orders, and posts an event
// for each to the source `parcels`, which finds the order's key in it. It needs PARCELS_URL and PARCELS_SECRET, and
// SHIPSTATION_KEY: API key and secret with `:` between them, in base64. With SHIPMENTS, a file answers in place of
// ShipStation.
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";

interface Webhook { resource_url: string; resource_type: string }
interface Shipment { shipmentId: number; orderNumber: string; trackingNumber: string | null }
interface Order { orderId: number; orderNumber: string }
interface Page { shipments?: Shipment[]; orders?: Order[]; pages: number }

/** Throws if an event could not be posted: the serializer then sends the webhook again. */
export async function relay({ resource_url, resource_type }: Webhook): Promise<void> {
  for (let page = 1, pages = 1; page <= pages; page++) {
    const found = await read(resource_url, page);
    for (const shipment of found.shipments ?? []) await post(resource_type, shipment.shipmentId, shipment);
    for (const order of found.orders ?? []) await post(resource_type, order.orderId, order);
    pages = found.pages;
  }
}

async function read(resource: string, page: number): Promise<Page> {
  if (process.env.SHIPMENTS) return JSON.parse(await readFile(process.env.SHIPMENTS, "utf8"));
  const url = new URL(resource);
  // The webhook is not signed: another host must not get the key.
  if (url.origin !== "https://ssapi.shipstation.com") throw new Error(`${url.origin} is not ShipStation`);
  url.searchParams.set("page", String(page));
  const headers = { authorization: `Basic ${process.env.SHIPSTATION_KEY}` };
  const answer = await fetch(url, { headers, redirect: "error" });
  if (!answer.ok) throw new Error(`ShipStation answered ${answer.status}`);
  return (await answer.json()) as Page;
}

async function post(type: string, number: number, data: Shipment | Order): Promise<void> {
  // The same shipment or order has the same id: relayed twice, its event is a repeat.
  const id = `shipstation-${type}-${number}`;
  const timestamp = String(Math.floor(Date.now() / 1000));
  const body = JSON.stringify({ type, data });
  const key = Buffer.from(process.env.PARCELS_SECRET!.replace("whsec_", ""), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  const headers = {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${signature}`,
  };
  const answer = await fetch(process.env.PARCELS_URL!, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`the source parcels answered ${answer.status}`);
}
