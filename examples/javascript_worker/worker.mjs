// A Holdfast worker that needs only Node.js. See README.md for how to run it.
import { setTimeout as sleep } from "node:timers/promises";
import { handlers } from "./handlers.mjs";

const { HOLDFAST_URL = "http://127.0.0.1:8000", HOLDFAST_KEY, SLOTS = 4 } = process.env;
const headers = { "content-type": "application/json" };
if (HOLDFAST_KEY) headers.authorization = `Bearer ${HOLDFAST_KEY}`;
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());

// Every request can be repeated. So if the server fails, or its response is lost, ask again.
async function call(path, body, { method = "POST", signal } = {}) {
  const options = { method, headers, signal, body: JSON.stringify(body) };
  for (let wait = 250; ; wait = Math.min(2 * wait, 10_000)) {
    const answer = await fetch(`${HOLDFAST_URL}/v1/leases${path}`, options).catch(() => undefined);
    const text = await answer?.text().catch(() => undefined);
    if (text !== undefined && !/429|5../.test(answer.status)) return JSON.parse(text || "{}");
    await sleep(wait, null, { signal });
  }
}
const renew = ({ lease_id, progress }) => call("/renew", { leases: [{ lease_id, progress }] });
const end = ({ lease_id }, outcome) => call(`/${lease_id}/outcome`, outcome, { method: "PUT" });
const failed = (err) => ({ status: "failed", code: `${err.code ?? err.name}`, text: err.message });

// Renew the lease until the attempt is over. If the lease is lost or the job canceled, abort it.
async function keep(job, attempt) {
  while (await sleep(1000 * job.renew_after, true, attempt).catch(() => false))
    if ((await renew(job)).leases?.[0].status !== "ok") attempt.abort();
}

// Run a job and report its outcome. If the server rejects that, report a failure instead.
async function run(job, attempt = new AbortController()) {
  keep(job, attempt);
  const outcome = await handlers[job.name](job.arguments, { job, signal: attempt.signal })
    .then((result) => ({ status: "succeeded", result }), failed);
  const { detail } = attempt.signal.aborted ? {} : await end(job, outcome);
  if (detail) await end(job, failed({ code: "REJECTED", message: detail }));
  attempt.abort();
}

// Wait for a job. When the worker stops, ask for one that was leased to it at that very moment.
async function work() {
  const wish = { request_id: crypto.randomUUID(), names: Object.keys(handlers) };
  const ask = (wait_seconds, signal) => call("", { ...wish, wait_seconds }, { signal });
  const { leases: [job] = [], detail } = await ask(50, stopping.signal).catch(() => ask(0));
  if (detail) throw new Error(detail);
  if (job) await (stopping.signal.aborted ? end(job, { status: "released" }) : run(job));
}
const slot = async () => { while (!stopping.signal.aborted) await work(); };
await Promise.all(Array.from({ length: SLOTS }, slot));
