// Takes spans as OTLP over HTTP in JSON, and writes each as a line of JSON to a file: trace, span, parent, service, name, begin and end in
// microseconds, and attributes.
//   node otlp_receiver.mjs PORT FILE

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

const [port, file] = process.argv.slice(2);
const valueOf = (value) => value.stringValue ?? Number(value.intValue);
const attributesOf = (list) => Object.fromEntries(list.map(({ key, value }) => [key, valueOf(value)]));

function write(body) {
  for (const { resource, scopeSpans } of body.resourceSpans) {
    const service = attributesOf(resource.attributes);
    for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
      const micros = (time) => Number(BigInt(time) / 1000n);
      const line = {
        trace: span.traceId,
        span: span.spanId,
        parent: span.parentSpanId ?? null,
        service: service["service.name"],
        instance: service["service.instance.id"],
        name: span.name,
        began: micros(span.startTimeUnixNano),
        ended: micros(span.endTimeUnixNano),
        attributes: attributesOf(span.attributes ?? []),
      };
      appendFileSync(file, `${JSON.stringify(line)}\n`);
    }
  }
}

createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const isExport = request.method === "POST" && request.url === "/v1/traces" && request.headers["content-type"] === "application/json";
    if (isExport) write(JSON.parse(Buffer.concat(chunks)));
    response.writeHead(isExport ? 200 : 404, { "content-type": "application/json" }).end("{}");
  });
}).listen(Number(port), "127.0.0.1");
