// Stands in for Lambda on this machine: calls function.mts for each request.
import { createServer } from "node:http";
import { handler } from "./function.mts";

createServer(async (request, response) => {
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    response.end(JSON.stringify(await handler(JSON.parse(Buffer.concat(chunks).toString()))));
  } catch (error) {
    response.setHeader("x-amz-function-error", "Unhandled");
    response.end(JSON.stringify({ errorType: "Error", errorMessage: String(error) }));
  }
}).listen(Number(process.env.PORT), "127.0.0.1");
