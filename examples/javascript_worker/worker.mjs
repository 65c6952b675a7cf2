// A Holdfast worker that needs only Node.js. See README.md for how to run it.
import { setTimeout as sleep } from "node:timers/promises";
import { handlers } from "./handlers.mjs";

const { HOLDFAST_URL = "http://127.0.0.1:8000", HOLDFAST_KEY, SLOTS = 4 } = process.env;
const headers = { "content-type": "application/json" };
if (HOLDFAST_KEY) headers.authorization = `Bearer ${HOLDFAST_KEY}`;
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());

// Every request can be repeated. So if the server fails, or its response is lost, ask again.
async function call(method, path, body, signal) {
  const options = { method, headers, signal, body: JSON.stringify(body) };
  for (let wait = 250; ; wait = Math.min(2 * wait, 10_000)) {
    const answer = await fetch(HOLDFAST_URL + path, options).catch(() => undefined);
    const text = await answer?.text().catch(() => undefined);
    if (text !== undefined && !/429|5../.test(answer.status)) return JSON.parse(text || "{}");
    await sleep(wait, null, { signal });
  }
}

// Wait for a job. When the worker stops, ask for one that was leased to it at that very moment.
async function lease() {
  const wish = { request_id: crypto.randomUUID(), names: Object.keys(handlers) };
  const ask = (wait, signal) => call("POST", "/v1/leases", { ...wish, wait_seconds: wait }, signal);
  const { leases = [], detail } = await ask(50, stopping.signal).catch(() => ask(0));
  if (detail) throw new Error(detail);
  return leases;
}

// Renew the lease until the attempt is over. If the lease is lost or the job canceled, abort it.
async function keep(job, attempt) {
  while (await sleep(1000 * job.renew_after, true, attempt).catch(() => false)) {
    const renewal = { lease_id: job.lease_id, progress: job.progress };
    const { leases } = await call("POST", "/v1/leases/renew", { leases: [renewal] });
    if (leases?.[0].status !== "ok") attempt.abort();
  }
}

function perform(job, { signal }) {
  const succeeded = (result) => ({ status: "succeeded", result });
  const failed = ({ code, name, message }) =>
    ({ status: "failed", code: String(code ?? name), text: message });
  return handlers[job.name](job.arguments, { job, signal }).then(succeeded, failed);
}

async function run(job) {
  const attempt = new AbortController();
  keep(job, attempt);
  const outcome = stopping.signal.aborted ? { status: "released" } : await perform(job, attempt);
  if (!attempt.signal.aborted) await call("PUT", `/v1/leases/${job.lease_id}/outcome`, outcome);
  attempt.abort();
}

async function work() {
  while (!stopping.signal.aborted) for (const job of await lease()) await run(job);
}
await Promise.all(Array.from({ length: SLOTS }, work));
