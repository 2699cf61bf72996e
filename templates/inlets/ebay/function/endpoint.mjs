// eBay's notifications, on their way into an SQS queue. The sources of all facts, read on 2026-11-29:
// https://developer.ebay.com/marketplace-account-deletion
// https://developer.ebay.com/api-docs/commerce/notification/overview.html
// https://github.com/eBay/event-notification-nodejs-sdk

import { createHash, createPublicKey, verify } from "node:crypto";

/** The path of the URL that eBay gets. */
export const PATH = "/ebay";

const MINUTE = 60_000;
/** eBay recommends an hour. */
const KEY_KEPT = 60 * MINUTE;
const CREDENTIALS_KEPT = 5 * MINUTE;
/** Forged signatures name keys that do not exist, and eBay limits the calls of a day. */
const LOOKUPS_AN_HOUR = 60;
const DIGESTS = ["SHA1", "SHA256"];

/** A request that eBay did not sign. */
class Refused extends Error {}

/** What eBay should send again later. */
class Unavailable extends Error {}

/**
 * Returns a function that answers the events of a Function URL.
 *
 * @param api the root of eBay's APIs
 * @param credentials returns a promise of `client_id`, `client_secret` and `verification_token`
 * @param send puts a text into the queue
 * @param log takes a line; no line holds a secret, a signature or a body
 */
export function endpoint({ api, credentials, send, fetch, log, now = Date.now }) {
  let known = { until: 0 };
  let token = { until: 0 };
  let lookups = { left: 0, until: 0 };
  const keys = new Map();

  async function secret(name) {
    if (now() >= known.until) known = { ...(await credentials()), until: now() + CREDENTIALS_KEPT };
    if (typeof known[name] !== "string" || known[name] === "") throw new Unavailable(`the secret has no ${name}`);
    return known[name];
  }

  async function call(what, path, options) {
    try {
      const response = await fetch(api + path, { ...options, redirect: "error", signal: AbortSignal.timeout(3000) });
      return { status: response.status, body: response.ok ? await response.json() : {} };
    } catch {
      throw new Unavailable(`${what} cannot be reached`);
    }
  }

  async function accessToken() {
    if (now() < token.until) return token.text;
    const user = `${await secret("client_id")}:${await secret("client_secret")}`;
    const { status, body } = await call("eBay's token service", "/identity/v1/oauth2/token", {
      method: "POST",
      headers: {
        authorization: `Basic ${Buffer.from(user).toString("base64")}`,
        "content-type": "application/x-www-form-urlencoded",
      },
      body: new URLSearchParams({ grant_type: "client_credentials", scope: "https://api.ebay.com/oauth/api_scope" }).toString(),
    });
    if (typeof body.access_token !== "string") {
      // The secret may have a newer value.
      known = { until: 0 };
      throw new Unavailable(`eBay's token service answered ${status}`);
    }
    token = { text: body.access_token, until: now() + (Number(body.expires_in) || 0) * 1000 - MINUTE };
    return token.text;
  }

  async function publicKey(id) {
    const held = keys.get(id);
    if (held && now() < held.until) return held.key;
    if (!held) {
      if (now() >= lookups.until) lookups = { left: LOOKUPS_AN_HOUR, until: now() + KEY_KEPT };
      if (lookups.left-- <= 0) throw new Unavailable("too many unknown keys");
    }
    const authorization = `Bearer ${await accessToken()}`;
    const { status, body } = await call("eBay's key service", `/commerce/notification/v1/public_key/${id}`, {
      headers: { authorization, "content-type": "application/json" },
    });
    if (status === 400 || status === 404) throw new Refused("eBay has no such key");
    if (status === 401) token = { until: 0 };
    if (status !== 200) throw new Unavailable(`eBay's key service answered ${status}`);
    const key = keyOf(body.key);
    keys.set(id, { key, until: now() + KEY_KEPT });
    return key;
  }

  async function challenge(event) {
    const code = event.queryStringParameters?.challenge_code;
    if (!code) return { statusCode: 400 };
    const url = `https://${event.requestContext.domainName}${PATH}`;
    const hash = createHash("sha256").update(code).update(await secret("verification_token")).update(url);
    return {
      statusCode: 200,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ challengeResponse: hash.digest("hex") }),
    };
  }

  async function notification(event) {
    const body = Buffer.from(event.body ?? "", event.isBase64Encoded ? "base64" : "utf8");
    const signature = signatureOf(event.headers["x-ebay-signature"]);
    const key = await publicKey(signature.kid);
    if (!verify(signature.digest, body, key, signature.bytes)) throw new Refused("the signature does not fit");
    await send(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
    return { statusCode: 204 };
  }

  return async (event) => {
    const { method, path } = event.requestContext.http;
    if (path !== PATH) return { statusCode: 404 };
    try {
      if (method === "GET") return await challenge(event);
      if (method === "POST") return await notification(event);
      return { statusCode: 405 };
    } catch (error) {
      const isRefused = error instanceof Refused;
      // Other errors may quote a secret or a body.
      const reason = isRefused || error instanceof Unavailable ? error.message : error.name;
      log(JSON.stringify({ level: isRefused ? "WARN" : "ERROR", message: "not sent to the queue", reason }));
      return { statusCode: isRefused ? 412 : 503 };
    }
  };
}

/** Reads the header, base64 of JSON. */
function signatureOf(header) {
  if (!header) throw new Refused("the signature is missing");
  let read;
  try {
    read = JSON.parse(Buffer.from(header, "base64").toString()) ?? {};
  } catch {
    throw new Refused("the signature is unreadable");
  }
  const { alg, digest, kid, signature } = read;
  const isRead = typeof kid === "string" && /^[\w-]{1,64}$/.test(kid) && typeof signature === "string";
  if (!isRead) throw new Refused("the signature is incomplete");
  if (String(alg).toLowerCase() !== "ecdsa" || !DIGESTS.includes(digest)) throw new Refused("another algorithm");
  return { kid, digest, bytes: Buffer.from(signature, "base64") };
}

/** Reads eBay's PEM, which has no line ends. */
function keyOf(pem) {
  try {
    const der = Buffer.from(pem.replace(/-----(BEGIN|END) PUBLIC KEY-----/g, ""), "base64");
    return createPublicKey({ key: der, format: "der", type: "spki" });
  } catch {
    throw new Unavailable("eBay's key is unreadable");
  }
}
