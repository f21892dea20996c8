// An issuer of tokens for CI jobs, as GitLab is one: RS256, with its key's public half as a JSON Web Key Set.
//   node id_token.mjs key KEY_FILE JWKS_FILE            makes a key
//   node id_token.mjs sign KEY_FILE CLAIMS_JSON         prints a token with these claims, and those that every token has
// Numbers and yes or no are texts in GitLab's tokens, so they are here.

import { createPrivateKey, createPublicKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const [command, keyFile, more] = process.argv.slice(2);
const KEY_ID = "suite";
const text = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

if (command === "key") {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  writeFileSync(keyFile, privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
  const jwk = createPublicKey(privateKey).export({ format: "jwk" });
  writeFileSync(more, JSON.stringify({ keys: [{ ...jwk, kid: KEY_ID, use: "sig", alg: "RS256" }] }));
} else {
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    jti: randomUUID(),
    iat: now,
    nbf: now - 5,
    exp: now + 3600,
    namespace_id: "3",
    namespace_path: "group",
    user_id: "12",
    user_login: "ann",
    user_email: "ann@example.com",
    pipeline_id: "700",
    pipeline_source: "push",
    ref: "main",
    ref_type: "branch",
    ref_path: "refs/heads/main",
    ref_protected: "false",
    runner_id: 1,
    runner_environment: "self-hosted",
    sha: "0000000000000000000000000000000000000000",
    ...JSON.parse(more),
  };
  for (const [name, value] of Object.entries(claims)) if (value === null) delete claims[name];
  claims.sub ??= `project_path:${claims.project_path}:ref_type:branch:ref:${claims.ref}`;
  const signed = `${text({ alg: "RS256", typ: "JWT", kid: KEY_ID })}.${text(claims)}`;
  const key = createPrivateKey(readFileSync(keyFile));
  process.stdout.write(`${signed}.${sign("sha256", Buffer.from(signed), key).toString("base64url")}\n`);
}
