// A Holdfast worker that needs only Node.js. See README.md for how to run it.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { handlers } from "./handlers.mjs";

const { HOLDFAST_URL = "http://127.0.0.1:8000", HOLDFAST_KEY, SLOTS = 4 } = process.env;
const headers = { "content-type": "application/json" };
if (HOLDFAST_KEY) headers.authorization = `Bearer ${HOLDFAST_KEY}`;
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());

// Every request can be repeated, so after a lost response, just ask again.
async function call(method, path, body, signal) {
  for (;; await sleep(1000)) {
    const options = { method, headers, signal, body: JSON.stringify(body) };
    const answer = await fetch(HOLDFAST_URL + path, options).catch(() => signal?.throwIfAborted());
    const text = await answer?.text().catch(() => undefined);
    if (text !== undefined && answer.status < 500 && answer.status !== 429) return { answer, text };
  }
}

async function lease(max) {
  const wanted = { request_id: randomUUID(), names: Object.keys(handlers), max, wait_seconds: 50 };
  const { answer, text } = await call("POST", "/v1/leases", wanted, stopping.signal).catch(() =>
    call("POST", "/v1/leases", { ...wanted, wait_seconds: 0 }), // jobs leased to it at that moment
  );
  if (!answer.ok) throw new Error(text);
  return text ? JSON.parse(text).leases : [];
}

// Renew the lease until the attempt is over. If the lease is lost, abort the attempt.
async function keep({ lease_id, renew_after }, attempt) {
  while (await sleep(1000 * renew_after, true, { signal: attempt.signal }).catch(() => false)) {
    const { text } = await call("POST", "/v1/leases/renew", { leases: [{ lease_id }] });
    if (JSON.parse(text).leases[0].status !== "ok") attempt.abort();
  }
}

async function perform(job, signal) {
  if (stopping.signal.aborted) return { status: "released" };
  try {
    return { status: "succeeded", result: await handlers[job.name](job.arguments, { job, signal }) };
  } catch (error) {
    return { status: "failed", code: String(error.code ?? error.name), text: error.message };
  }
}

async function run(job) {
  const attempt = new AbortController();
  const keeping = keep(job, attempt);
  const outcome = await perform(job, attempt.signal);
  const isLost = attempt.signal.aborted;
  if (!isLost) await call("PUT", `/v1/leases/${job.lease_id}/outcome`, outcome);
  attempt.abort();
  await keeping;
}

const running = new Set();
while (!stopping.signal.aborted) {
  for (const job of await lease(SLOTS - running.size)) {
    const done = run(job).finally(() => running.delete(done));
    running.add(done);
  }
  if (running.size >= SLOTS) await Promise.race(running);
}
await Promise.all(running); // Running jobs finish. Jobs that have not started are released.
