// An OpenID Connect provider: the npm package oidc-provider, which is certified, with its own pages for signing in, in
// memory. Whoever signs in as NAME is that user.
//   node provider.mjs PORT PUBLIC_URL CLIENT_ID SECRET_FILE

import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const [port, publicUrl, clientId, secretFile] = process.argv.slice(2);
const GROUPS = { ann: ["devs", "staff"], bob: ["staff"] };

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
  // The message to the gateway goes to this machine, which the package's own rules would refuse.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
});
provider.on("backchannel.success", () => console.log("backchannel logout delivered"));
provider.on("backchannel.error", (_, error) => console.log(`backchannel logout failed: ${error.message}`));
provider.on("server_error", (_, error) => console.log(`server error: ${error.stack}`));
provider.listen(Number(port), "127.0.0.1");
