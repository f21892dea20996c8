// An OpenID Connect provider: the npm package oidc-provider, which is certified, with its own pages for signing in, in
// memory. Whoever signs in as NAME is that user.
//   node provider.mjs PORT PUBLIC_URL CLIENT_ID SECRET_FILE

import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { Provider } from "oidc-provider";

const [port, publicUrl, clientId, secretFile] = process.argv.slice(2);
const GROUPS = { ann: ["devs", "staff"], bob: ["staff"], olga: ["operators", "staff"] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: clientId,
      client_secret: readFileSync(secretFile, "utf8").trim(),
      redirect_uris: [`${publicUrl}/.gateway/oidc/callback`],
      post_logout_redirect_uris: [`${publicUrl}/.gateway/signed-out`],
      backchannel_logout_uri: `${publicUrl}/.gateway/oidc/backchannel-logout`,
      backchannel_logout_session_required: true,
      response_types: ["code"],
      grant_types: ["authorization_code"],
    },
  ],
  // One name for the user and the account keeps the suite readable; the gateway keys people by issuer and subject.
  async findAccount(_, id) {
    return {
      accountId: id,
      claims: async () => ({ sub: id, preferred_username: id, groups: GROUPS[id] ?? [], email: `${id}@example.com`, email_verified: true }),
    };
  },
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
  cookies: { keys: ["only for this suite"] },
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  // The gateway's name is this machine, which the package's own rules would refuse, and its certificate is made up.
  fetch: deliver,
});
provider.on("backchannel.success", () => console.log("backchannel logout delivered"));
provider.on("backchannel.error", (_, error) => console.log(`backchannel logout failed: ${error.message}`));
provider.on("server_error", (_, error) => console.log(`server error: ${error.stack}`));
provider.listen(Number(port), "127.0.0.1");

function deliver(address, { method, headers, body }) {
  const url = new URL(address);
  const lookup = (_, { all }, found) => (all ? found(null, [{ address: "127.0.0.1", family: 4 }]) : found(null, "127.0.0.1", 4));
  const settings = { method, headers: Object.fromEntries(new Headers(headers)), lookup, agent: false, rejectUnauthorized: false };
  return new Promise((resolve, reject) => {
    const request = (url.protocol === "https:" ? https : http).request(url, settings, (answer) => {
      answer.resume();
      resolve(new Response(null, { status: answer.statusCode }));
    });
    request.on("error", reject);
    request.end(String(body));
  });
}
