// The function of template.yaml. Lambda's runtime has both packages.

import { GetSecretValueCommand, SecretsManagerClient } from "@aws-sdk/client-secrets-manager";
import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";
import { endpoint } from "./endpoint.mjs";

const { EBAY_API, QUEUE_URL, SECRET_ARN } = process.env;
const options = { maxAttempts: 2, requestHandler: { connectionTimeout: 1000, requestTimeout: 2000 } };
const queue = new SQSClient(options);
const secrets = new SecretsManagerClient(options);

export const handler = endpoint({
  api: EBAY_API,
  credentials: async () => JSON.parse((await secrets.send(new GetSecretValueCommand({ SecretId: SECRET_ARN }))).SecretString),
  send: (text) => queue.send(new SendMessageCommand({ QueueUrl: QUEUE_URL, MessageBody: text })),
  fetch,
  log: console.log,
});
