// A front of HTTP/2 before the listener for agents, with one fault.
//   node doctor_front.mjs trailers|date|version HOST PORT TARGET CERT KEY
// `trailers` passes everything on but trailers; `date` says a time ten minutes ago;
// `version` says that the gateway is an older one.

import { readFileSync } from "node:fs";
import http2 from "node:http2";

const [fault, host, port, target, cert, key] = process.argv.slice(2);
const LATE = 600_000;

const server = http2.createSecureServer({ cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ["h2"] });
server.on("stream", (stream, headers) => {
  const session = http2.connect(target, { rejectUnauthorized: false });
  session.on("error", () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
  const request = session.request({ ...headers, ":scheme": "https" });
  let trailers;
  stream.on("error", () => session.destroy());
  stream.on("wantTrailers", () => stream.sendTrailers(trailers ?? {}));
  stream.pipe(request);
  request.on("error", () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
  request.on("trailers", (found) => (trailers = { ...found }));
  request.on("response", (found, flags) => {
    const head = { ...found };
    if (fault === "date") head.date = new Date(Date.now() - LATE).toUTCString();
    if (fault === "version" && head["gateway-version"]) head["gateway-version"] = "0.0.9";
    const isWhole = Boolean(flags & http2.constants.NGHTTP2_FLAG_END_STREAM);
    stream.respond(head, { endStream: isWhole, waitForTrailers: !isWhole && fault !== "trailers" });
    if (!isWhole) request.pipe(stream);
  });
  request.on("close", () => session.close());
});
server.on("sessionError", () => {});
server.listen(Number(port), host, () => console.log("ready"));
