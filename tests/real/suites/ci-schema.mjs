// Definitions of CI pipelines against GitLab's schema, as gitlab-ci-local carries it. Run by ci-schema.sh.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { check, end, fail, ok, options } from "../lib/checks.mjs";

const { definitions, local, out } = options();
// What gitlab-ci-local itself uses, so that nothing else has to be installed.
const require = createRequire(local);
const Ajv = require("ajv").default ?? require("ajv");
const yaml = require("js-yaml");
const { schema } = await import(join(dirname(local), "schema/schema.js"));

// The schema has keywords for editors, and formats that nothing here depends on.
const validate = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
const told = () => validate.errors?.map((error) => `${error.instancePath} ${error.message}`).join("; ") ?? "";

const names = readdirSync(definitions).filter((name) => name.endsWith(".yml"));
check("there are recorded definitions", names.length > 1);
for (const name of names) {
  const definition = yaml.load(readFileSync(join(definitions, name), "utf8"));
  check(`${name} is what the schema describes`, validate(definition), told());
  const [script] = definition.workspace.script;
  check(`${name} has one script`, definition.workspace.script.length === 1 && script.startsWith("# workspace "));
  writeFileSync(join(out, `${name}.script`), script);
  // The schema has to say no to something, or its yes is worth nothing.
  for (const [what, wrong] of [
    ["a keyword that there is not", (job) => (job.imagery = "a")],
    ["a time that is a number", (job) => (job.timeout = 480)],
    ["a token without audience", (job) => (job.id_tokens = { A: {} })],
    ["tags that are no list", (job) => (job.tags = "a")],
  ]) {
    const changed = structuredClone(definition);
    wrong(changed.workspace);
    if (validate(changed)) fail(`${name} with ${what} is taken too`);
    else ok(`${name} with ${what} is refused`);
  }
}
end();
