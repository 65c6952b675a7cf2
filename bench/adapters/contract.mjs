// What contract.py is for Python, for the queues that run on Node.
//
// An adapter calls `main` with an object: settings(), prepare(), work(), unfinished() and open(),
// which answers { enqueue(job), bulk(jobs), close() }. Its handler calls `handled(sentAt)`.

import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const BULK_JOBS = 1000
const COUNT_BYTES = 24

export const around = {
  folder: process.env.BENCH_FOLDER || '.',
  variant: process.env.BENCH_VARIANT || 'best',
  databaseUrl: process.env.BENCH_DATABASE_URL || '',
  concurrency: Number(process.env.BENCH_CONCURRENCY || '100')
}
export const best = around.variant === 'best'

// The runtime is installed beside the packages, so they are found from where it is.
const installed = createRequire(process.execPath)

export const load = async name => import(pathToFileURL(installed.resolve(name)))

export function version (name) {
  const packages = process.execPath.split(`${path.sep}node_modules${path.sep}`)[0]
  const text = fs.readFileSync(path.join(packages, 'node_modules', name, 'package.json'), 'utf8')
  return `${name} ${JSON.parse(text).version}`
}

const now = () => (performance.timeOrigin + performance.now()) / 1000

class Tally {
  constructor () {
    fs.mkdirSync(around.folder, { recursive: true })
    const file = path.join(around.folder, String(process.pid))
    this.counts = fs.openSync(`${file}.count`, 'w')
    this.latencies = fs.openSync(`${file}.latencies`, 'a')
    this.content = Buffer.alloc(COUNT_BYTES)
    this.handled = 0
  }

  add (at, sentAt) {
    if (this.handled === 0) this.content.writeDoubleLE(at, 8)
    this.handled += 1
    this.content.writeBigInt64LE(BigInt(this.handled), 0)
    this.content.writeDoubleLE(at, 16)
    fs.writeSync(this.counts, this.content, 0, COUNT_BYTES, 0)
    if (sentAt) {
      const latency = Buffer.alloc(8)
      latency.writeDoubleLE(at - sentAt)
      fs.writeSync(this.latencies, latency)
    }
  }
}

let tally

export function handled (sentAt) {
  const at = now()
  tally ??= new Tally()
  tally.add(at, sentAt)
}

const tell = answer => console.log(JSON.stringify(answer))
const pause = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000))

async function send (verb, jobs, gap, padding, client) {
  const began = performance.now()
  if (verb === 'bulk') {
    for (let first = 0; first < jobs; first += BULK_JOBS) {
      const size = Math.min(BULK_JOBS, jobs - first)
      await client.bulk(Array.from({ length: size }, () => ({ sentAt: 0, padding })))
    }
  } else {
    // The first prepares what the others find prepared.
    if (verb === 'latency') await client.enqueue({ sentAt: 0, padding })
    for (let number = 0; number < jobs; number++) {
      if (verb === 'latency') await pause(gap)
      await client.enqueue({ sentAt: verb === 'latency' ? now() : 0, padding })
    }
    // A process that ends would be in the way of the last.
    if (verb === 'latency') await pause(gap)
  }
  return (performance.now() - began) / 1000
}

export async function main (adapter) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { payload: { type: 'string', default: '0' } }
  })
  const [verb, jobs, gap] = positionals
  if (verb === 'settings') {
    tell({ variant: around.variant, ...adapter.settings() })
  } else if (verb === 'prepare') {
    await adapter.prepare()
    tell({})
  } else if (verb === 'work') {
    await adapter.work()
    return // until SIGTERM
  } else if (verb === 'unfinished') {
    const count = async () => tell({ unfinished: await adapter.unfinished(), at: now() })
    await count()
    for await (const _ of readline.createInterface({ input: process.stdin })) await count()
  } else if (['enqueue', 'bulk', 'latency'].includes(verb)) {
    const client = await adapter.open()
    const padding = 'x'.repeat(Number(values.payload))
    const seconds = await send(verb, Number(jobs), Number(gap), padding, client)
    tell({ jobs: Number(jobs), seconds })
    await client.close()
  } else {
    console.error(`unknown verb: ${verb}`)
    process.exit(2)
  }
  process.exit(0)
}

export async function count (sql) {
  const { default: pg } = await load('pg')
  const client = new pg.Client(around.databaseUrl)
  await client.connect()
  try {
    return Number((await client.query(sql)).rows[0].count)
  } finally {
    await client.end()
  }
}
