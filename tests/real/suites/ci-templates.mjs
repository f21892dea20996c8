// The templates of deploy/ci/gitlab: against GitLab's schema, in a project that has settings of its own, and the script that fetches a
// definition against a gateway that refuses, that is not there yet and that breaks off. Run by ci-schema.sh.

import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { check, end, options } from "../lib/checks.mjs";

const { templates, local, out } = options();
const require = createRequire(local);
const Ajv = require("ajv").default ?? require("ajv");
const yaml = require("js-yaml");
const { schema } = await import(join(dirname(local), "schema/schema.js"));
const validate = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
const told = () => validate.errors?.map((error) => `${error.instancePath} ${error.message}`).join("; ") ?? "";

const INPUTS = { gateway: "https://gateway.example.com", "public-url": "https://gateway.example.com", agent: "production" };

// What GitLab makes of an input: its value where nothing stands beside it, and a part of a text elsewhere.
function filled(value, inputs) {
  if (Array.isArray(value)) return value.map((part) => filled(part, inputs));
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, filled(part, inputs)]));
  if (typeof value !== "string") return value;
  const whole = value.match(/^\$\[\[ inputs\.([-a-z0-9]+) \]\]$/);
  if (whole) return inputs[whole[1]];
  return value.replace(/\$\[\[ inputs\.([-a-z0-9]+) \]\]/g, (_, name) => inputs[name]);
}

// The template with inputs: those that it does not require have defaults. A `!reference` is for GitLab to read.
const references = yaml.DEFAULT_SCHEMA.extend([new yaml.Type("!reference", { kind: "sequence", construct: (data) => data })]);
function template(name, given = {}) {
  const [header, body] = yaml.loadAll(readFileSync(join(templates, name), "utf8"), null, { schema: references });
  const described = Object.entries(header.spec.inputs);
  const inputs = Object.fromEntries(described.map(([input, { default: usual }]) => [input, given[input] ?? usual ?? INPUTS[input]]));
  return { header, body: filled(body, inputs) };
}

const names = readdirSync(templates).filter((name) => name.endsWith(".yml"));
check("there are templates", names.length === 3, names.join(" "));
for (const name of names) {
  // The schema wants one tag or none at all; GitLab itself takes an empty list, and needs it where there are default ones.
  const { header, body } = template(name, { tags: ["one"] });
  check(`${name} says its inputs as the schema describes`, validate(header), told());
  // What is there to be extended is described by nothing: here it is a job.
  const jobs = Object.entries(body).map(([job, content]) => [job.replace(/^\./, ""), job.startsWith(".") ? { script: ["true"], ...content } : content]);
  const visible = Object.fromEntries(jobs);
  check(`${name} is what the schema describes`, validate(visible), told());
  const changed = structuredClone(visible);
  changed[jobs[0][0]].imagery = "a";
  check(`${name} with a keyword that there is not is refused`, !validate(changed));
}

// --- in a project that has settings of its own ------------------------------------------------------------------------

// run PROGRAM … : its status and what it printed.
function run(program, words, { cwd, env = process.env }) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    let [output, errors] = ["", ""];
    child.stdout.on("data", (data) => (output += data));
    child.stderr.on("data", (data) => (errors += data));
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, output, errors }));
  });
}

// A project as gitlab-ci-local reads it, with all that is included and inherited.
async function preview(name, pipeline) {
  const project = join(out, name);
  mkdirSync(join(project, "ci"), { recursive: true });
  for (const file of names) writeFileSync(join(project, "ci", file), readFileSync(join(templates, file)));
  writeFileSync(join(project, ".gitlab-ci.yml"), pipeline);
  const git = (...words) => run("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...words], { cwd: project });
  await git("init", "-q");
  await git("add", ".");
  await git("commit", "-q", "-m", "one");
  await git("remote", "add", "origin", "https://gitlab.example.com/group/project.git");
  const env = { ...process.env, HOME: out, NO_COLOR: "1" };
  const read = await run(process.execPath, [local, "--preview", "--variable", "WORKSPACE_GATEWAY_RUN=0"], { cwd: project, env });
  if (!check(`gitlab-ci-local reads the project ${name}`, read.status === 0, read.errors || read.output)) return {};
  // The document behind what it says about itself.
  return yaml.loadAll(read.output, null, { schema: references }).at(-1);
}

const project = `
include:
  - {local: /ci/workspace.yml, inputs: {gateway: "https://gateway.example.com", tags: [ours]}}
  - {local: /ci/ci-debug.yml, inputs: {gateway: "https://agents.example.com", public-url: "https://gateway.example.com"}}
variables: {GIT_STRATEGY: clone, KUBERNETES_MEMORY_LIMIT: 1Gi}
default:
  image: ruby:3
  before_script: [bundle install]
  after_script: [tidy up]
  cache: {paths: [vendor/], key: theirs}
  artifacts: {paths: [theirs/]}
  services: [postgres:16]
  tags: [theirs]
  interruptible: true
  id_tokens: {THEIRS: {aud: "https://theirs.example.com"}}
test:
  extends: .held-when-failed
  before_script: [!reference [.held-when-failed, before_script], "theirs too"]
  script: [held make test]
`;
const { "workspace-definition": first, workspace: second, test } = await preview("project-with-settings", project);
const own = template("workspace.yml").body;
check("the first job runs its own script only", (first?.before_script ?? []).length === 0 && (first?.after_script ?? []).length === 0, JSON.stringify(first));
for (const [job, read] of Object.entries({ "workspace-definition": first, workspace: second })) {
  // What gitlab-ci-local writes in its own way is not compared: names of images, lists of caches.
  for (const keyword of ["services", "id_tokens", "interruptible", "artifacts"]) {
    const [wanted, got] = [own[job][keyword], read?.[keyword]].map((value) => JSON.stringify(value ?? null));
    check(`${job} takes over no ${keyword} of the project`, wanted === got, got);
  }
  check(`${job} takes over no other setting of the project`, !/theirs|ruby/.test(JSON.stringify(read ?? "theirs")), JSON.stringify(read));
  check(`${job} takes over no variables of the project`, own[job].inherit?.variables === false);
}
const { forward } = own.workspace.trigger;
check("the child pipeline gets the gateway's variables and no others", forward?.pipeline_variables === true && forward.yaml_variables === false);
const before = [test?.before_script ?? []].flat().join("\n");
check("a job with a before_script of its own can be held", before.includes("held()") && before.includes("theirs too"), before.slice(-200));

// --- the script that fetches a definition -----------------------------------------------------------------------------

// A `sleep` that takes no time and tells how often it was called: a gateway that is not there can come then.
const bin = join(out, "bin");
mkdirSync(bin, { recursive: true });
writeFileSync(join(bin, "sleep"), '#!/bin/sh\nexec curl -sS -o /dev/null "$SLEEPING/$1"\n');
chmodSync(join(bin, "sleep"), 0o755);
const listen = (server, port = 0) => new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server.address().port)));
const DEFINITION = "workspace: {}\n";
const PROBLEM = '{"code": "run_unknown"}';

// fetching SHELL ANSWERS BEGIN : runs the script against a gateway that gives these answers one after the other and the last one for
// ever: a status, "reset", or "cut" in the middle. It begins to listen when the script has slept so often; never with Infinity.
async function fetching(shell, answers, begin = 0) {
  let [asked, slept, token] = [0, [], ""];
  const gateway = createServer((request, response) => {
    const answer = answers[Math.min(asked, answers.length - 1)];
    asked += 1;
    token = request.headers.authorization;
    if (request.url !== "/api/v1/ci/pipeline") return response.writeHead(404).end();
    if (answer === "reset") return request.socket.resetAndDestroy();
    if (answer === "cut") {
      response.writeHead(200, { "content-length": 1000 });
      return response.write(DEFINITION, () => request.socket.destroy());
    }
    response.writeHead(answer, { connection: "close", "retry-after": "1" }).end(answer === 200 ? DEFINITION : PROBLEM);
  });
  const sleeping = createServer((request, response) => {
    slept.push(request.url);
    const answer = () => response.writeHead(200, { connection: "close" }).end();
    if (slept.length === begin) listen(gateway, port).then(answer);
    else answer();
  });
  const port = await listen(gateway);
  if (begin > 0) await new Promise((resolve) => gateway.close(resolve));
  const { body } = template("workspace.yml", { gateway: `http://127.0.0.1:${port}` });
  const cwd = join(out, "fetching");
  mkdirSync(cwd, { recursive: true });
  // What an attempt before it left.
  writeFileSync(join(cwd, "workspace-pipeline.yml"), "old\n");
  const env = { PATH: `${bin}:${process.env.PATH}`, WORKSPACE_GATEWAY_ID_TOKEN: "a.b.c", SLEEPING: `http://127.0.0.1:${await listen(sleeping)}` };
  const ended = await run(shell[0], [...shell.slice(1), body["workspace-definition"].script.join("\n")], { cwd, env });
  gateway.close();
  sleeping.close();
  const { status, output } = ended;
  const read = await run("cat", ["workspace-pipeline.yml"], { cwd });
  return { asked, slept, status, output, token, definition: read.output };
}

const shells = [["sh", "-ec"], ["bash", "-eo", "pipefail", "-c"]];
if ((await run("sh", ["-c", "command -v busybox"], {})).status === 0) shells.push(["busybox", "sh", "-eo", "pipefail", "-c"]);
for (const shell of shells) {
  const by = shell[0];
  const same = (text, want, got) => check(`${by}: ${text}`, JSON.stringify(want) === JSON.stringify(got), `want ${JSON.stringify(want)}, got ${JSON.stringify(got)}`);
  for (const refusal of [401, 404, 409]) {
    const { asked, status, output } = await fetching(shell, [refusal]);
    same(`what is refused with ${refusal} is not asked again`, [1, 22], [asked, status]);
    check(`${by}: and the reason is in the log`, output.includes(PROBLEM) && output.includes("did not give"), output);
  }
  const waited = await fetching(shell, [503, 503, 429, 200]);
  same("a gateway that does not know the pipeline yet is asked again", [4, 0, DEFINITION], [waited.asked, waited.status, waited.definition]);
  same("a few seconds later each time", ["/5", "/5", "/5"], waited.slept);
  same("with the job's token", "Bearer a.b.c", waited.token);
  const broken = await fetching(shell, ["reset", "cut", 200]);
  same("so is one that breaks off", [3, 0, DEFINITION], [broken.asked, broken.status, broken.definition]);
  const later = await fetching(shell, [200], 3);
  same("so is one that is not there yet", [1, 0, 3], [later.asked, later.status, later.slept.length]);
  const never = await fetching(shell, [503]);
  same("but not for ever", [13, 22], [never.asked, never.status]);
  const nowhere = await fetching(shell, [200], Infinity);
  same("nor one that never comes, and nothing of before is left", [12, 7, ""], [nowhere.slept.length, nowhere.status, nowhere.definition]);
}
end();
