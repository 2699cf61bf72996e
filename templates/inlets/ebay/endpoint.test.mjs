// node --test templates/inlets/ebay/endpoint.test.mjs

import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { endpoint } from "./function/endpoint.mjs";

const MESSAGE = JSON.parse(readFileSync(new URL("message.json", import.meta.url), "utf8"));
const BODY = MESSAGE.Records[0].body;
const SECRET = { client_id: "example-client", client_secret: "example-secret", verification_token: "71745723-d031-455c-bfa5-f90d11b4f20a" };
const API = "https://api.example";
const TOKEN = `${API}/identity/v1/oauth2/token`;
const KEYS = `${API}/commerce/notification/v1/public_key/`;
const HOUR = 3_600_000;

const pair = () => generateKeyPairSync("ec", { namedCurve: "P-256" });
const EBAY = pair();
/** As eBay sends it, without line ends. */
const PEM = EBAY.publicKey.export({ format: "pem", type: "spki" }).replaceAll("\n", "");

function header(body, { privateKey = EBAY.privateKey, digest = "SHA1", ...others } = {}) {
  const signature = sign(digest, Buffer.from(body), privateKey).toString("base64");
  return Buffer.from(JSON.stringify({ alg: "ecdsa", kid: "key-1", signature, digest, ...others })).toString("base64");
}

const basic = ({ client_id, client_secret }) => `Basic ${Buffer.from(`${client_id}:${client_secret}`).toString("base64")}`;
const json = (body, status = 200) => new Response(JSON.stringify(body), { status });

/** An endpoint with stubs for eBay, the queue and the clock. */
function world(change = {}) {
  const made = { calls: [], queue: [], lines: [], at: 1_767_621_700_000, secret: SECRET };
  const answers = {
    [TOKEN]: () => json({ access_token: "example-token", expires_in: 7200 }),
    [`${KEYS}key-1`]: () => json({ key: PEM, algorithm: "ECDSA", digest: "SHA1" }),
    ...change.answers,
  };
  const answer = endpoint({
    api: API,
    credentials: change.credentials ?? (async () => made.secret),
    send: change.send ?? (async (text) => void made.queue.push(text)),
    fetch: async (url, options) => {
      made.calls.push({ url, ...options });
      return (answers[url] ?? (() => json({ errors: [{ errorId: 195001 }] }, 404)))();
    },
    log: (line) => made.lines.push(line),
    now: () => made.at,
  });
  made.asked = (method, { path = "/ebay", ...others } = {}) =>
    answer({
      headers: {},
      requestContext: { domainName: "abc.lambda-url.eu-central-1.on.aws", http: { method, path } },
      ...others,
    });
  made.posted = async (body, signature, others) => {
    const headers = signature === undefined ? {} : { "x-ebay-signature": signature };
    return (await made.asked("POST", { body, headers, ...others })).statusCode;
  };
  made.count = (start) => made.calls.filter(({ url }) => url.startsWith(start)).length;
  return made;
}

test("signed notification reaches the queue with its exact bytes", async () => {
  const { posted, queue } = world();
  assert.equal(await posted(BODY, header(BODY)), 204);
  const encoded = { isBase64Encoded: true };
  const spaced = `\uFEFF ${BODY}\r\n`;
  assert.equal(await posted(Buffer.from(spaced).toString("base64"), header(spaced), encoded), 204);
  assert.equal(await posted(BODY, header(BODY, { digest: "SHA256" })), 204);
  assert.deepEqual(queue.map((text) => Buffer.from(text)), [BODY, spaced, BODY].map((text) => Buffer.from(text)));
});

test("what eBay did not sign gets 412 and stays out of the queue", async () => {
  const { posted, queue, lines } = world();
  const other = pair().privateKey;
  for (const signature of [
    undefined,
    "",
    "%%%",
    Buffer.from("null").toString("base64"),
    header(`${BODY} `),
    header(BODY, { privateKey: other }),
    header(BODY, { alg: "hmac" }),
    header(BODY, { digest: "MD5" }),
    header(BODY, { alg: undefined }),
    header(BODY, { signature: "" }),
    header(BODY, { signature: 7 }),
    header(BODY, { kid: "key-2" }),
    header(BODY, { kid: "../../../identity/v1/oauth2/token" }),
  ]) {
    assert.equal(await posted(BODY, signature), 412, signature);
  }
  assert.deepEqual(queue, []);
  assert.equal(lines.length, 13);
});

/** `printf %s CODE TOKEN URL | sha256sum` made the expected hash. */
test("challenge is answered with the hash of code, token and URL", async () => {
  const { asked } = world();
  const code = "a8628072-3d33-45ee-9004-bee86830a22d";
  const answer = await asked("GET", { queryStringParameters: { challenge_code: code } });
  assert.deepEqual([answer.statusCode, answer.headers["content-type"]], [200, "application/json"]);
  const { challengeResponse } = JSON.parse(answer.body);
  assert.equal(challengeResponse, "75fc689cc27e6b37aebbb49bfaadd453a2cfb7f3afebca6529129eed0f72dda4");
  assert.equal((await asked("GET")).statusCode, 400);
  assert.equal((await asked("PUT")).statusCode, 405);
  assert.equal((await asked("GET", { path: "/", queryStringParameters: { challenge_code: code } })).statusCode, 404);
});

test("key and token are asked for once until they are too old", async () => {
  const made = world();
  for (let sent = 0; sent < 3; sent++) assert.equal(await made.posted(BODY, header(BODY)), 204);
  assert.deepEqual([made.count(TOKEN), made.count(KEYS)], [1, 1]);
  const [token, key] = made.calls;
  assert.equal(token.headers.authorization, "Basic ZXhhbXBsZS1jbGllbnQ6ZXhhbXBsZS1zZWNyZXQ=");
  assert.equal(token.body, "grant_type=client_credentials&scope=https%3A%2F%2Fapi.ebay.com%2Foauth%2Fapi_scope");
  assert.equal(key.headers.authorization, "Bearer example-token");
  made.at += HOUR;
  await made.posted(BODY, header(BODY));
  assert.deepEqual([made.count(TOKEN), made.count(KEYS)], [1, 2]);
  made.at += HOUR;
  await made.posted(BODY, header(BODY));
  assert.deepEqual([made.count(TOKEN), made.count(KEYS)], [2, 3]);
});

test("eBay is told to send again while a service is out", async () => {
  const fails = () => {
    throw new TypeError("fetch failed");
  };
  const rejects = async () => {
    throw new Error(BODY);
  };
  for (const change of [
    { answers: { [TOKEN]: fails } },
    { answers: { [TOKEN]: () => json({ error: "invalid_client" }, 401) } },
    { answers: { [`${KEYS}key-1`]: fails } },
    { answers: { [`${KEYS}key-1`]: () => json({}, 401) } },
    { answers: { [`${KEYS}key-1`]: () => json({}, 429) } },
    { answers: { [`${KEYS}key-1`]: () => json({}, 500) } },
    { answers: { [`${KEYS}key-1`]: () => new Response("<html>") } },
    { answers: { [`${KEYS}key-1`]: () => json({ key: "-----BEGIN PUBLIC KEY-----" }) } },
    { credentials: rejects },
    { credentials: async () => ({ ...SECRET, client_secret: undefined }) },
    { send: rejects },
  ]) {
    const { posted, queue } = world(change);
    assert.equal(await posted(BODY, header(BODY)), 503);
    assert.deepEqual(queue, []);
  }
});

test("a refused token and changed credentials are read anew", async () => {
  let isRevoked = true;
  const made = world({
    answers: {
      [TOKEN]: () => {
        const isOld = made.calls.at(-1).headers.authorization === basic(SECRET);
        return isOld ? json({}, 401) : json({ access_token: "example-token", expires_in: 7200 });
      },
      [`${KEYS}key-1`]: () => (isRevoked ? json({}, 401) : json({ key: PEM })),
    },
  });
  assert.equal(await made.posted(BODY, header(BODY)), 503);
  made.secret = { ...SECRET, client_secret: "rotated-secret" };
  assert.equal(await made.posted(BODY, header(BODY)), 503);
  isRevoked = false;
  assert.equal(await made.posted(BODY, header(BODY)), 204);
  assert.equal(made.count(TOKEN), 3);
});

test("forged key ids cost eBay's service sixty calls an hour", async () => {
  const made = world();
  assert.equal(await made.posted(BODY, header(BODY)), 204);
  const forged = (number) => made.posted(BODY, header(BODY, { kid: `forged-${number}` }));
  for (let number = 1; number < 60; number++) assert.equal(await forged(number), 412);
  assert.equal(await forged(60), 503);
  assert.equal(made.count(KEYS), 60);
  assert.equal(await made.posted(BODY, header(BODY)), 204, "a known key needs no call");
  made.at += HOUR;
  assert.equal(await forged(61), 412);
});

test("no line holds a secret, a signature or a body", async () => {
  const quote = async () => JSON.parse(`{"client_secret":"${SECRET.client_secret}`);
  const worlds = [
    world({ credentials: quote }),
    world({ send: async () => Promise.reject(new Error(BODY)) }),
    world({ answers: { [TOKEN]: () => json({ error: SECRET.client_secret }, 400) } }),
    world(),
  ];
  for (const made of worlds) {
    const signature = header(BODY);
    await made.posted(BODY, signature);
    await made.posted(`${BODY} `, signature);
    const lines = made.lines.join("\n");
    assert.ok(made.lines.length > 0);
    const { signature: bytes } = JSON.parse(Buffer.from(signature, "base64"));
    for (const text of [...Object.values(SECRET), "example-token", signature, bytes, "notificationId", "11-14972-20806"]) {
      assert.ok(!lines.includes(text), lines);
    }
  }
});

/** Lambda's runtime brings the AWS SDK; stubs of its two clients record what they are asked. */
test("deployed function reads its secret and sends to its queue", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "ebay-"));
  context.after(() => rmSync(folder, { recursive: true }));
  cpSync(fileURLToPath(new URL("function", import.meta.url)), folder, { recursive: true });
  for (const [client, command] of [
    ["secrets-manager", "GetSecretValueCommand"],
    ["sqs", "SendMessageCommand"],
  ]) {
    const name = client === "sqs" ? "SQSClient" : "SecretsManagerClient";
    const module = join(folder, "node_modules/@aws-sdk", `client-${client}`);
    mkdirSync(module, { recursive: true });
    writeFileSync(join(module, "package.json"), '{"type":"module","exports":"./index.js"}');
    writeFileSync(
      join(module, "index.js"),
      `export class ${command} { constructor(input) { this.input = input; } }
       export class ${name} { send(command) { return globalThis.aws("${command}", command.input); } }`,
    );
  }
  const asked = [];
  globalThis.aws = async (command, input) => {
    asked.push([command, input]);
    return { SecretString: JSON.stringify(SECRET) };
  };
  Object.assign(process.env, { EBAY_API: API, QUEUE_URL: "https://sqs.example/1/ebay", SECRET_ARN: "arn:secret" });
  context.mock.method(globalThis, "fetch", async (url) =>
    url === TOKEN ? json({ access_token: "example-token", expires_in: 7200 }) : json({ key: PEM }),
  );
  const { handler } = await import(pathToFileURL(join(folder, "index.mjs")));
  const http = { method: "POST", path: "/ebay" };
  const event = { body: BODY, headers: { "x-ebay-signature": header(BODY) }, requestContext: { domainName: "a.example", http } };
  assert.deepEqual(await handler(event), { statusCode: 204 });
  assert.deepEqual(asked, [
    ["GetSecretValueCommand", { SecretId: "arn:secret" }],
    ["SendMessageCommand", { QueueUrl: "https://sqs.example/1/ebay", MessageBody: BODY }],
  ]);
});
