// pg-boss.

import { around, best, count, handled, load, main, version } from './contract.mjs'

const { PgBoss } = await load('pg-boss')

const QUEUE = 'noop'
const BATCH_JOBS = 500
const UNFINISHED = "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state < 'completed'"

const described = best
  ? `batchSize ${BATCH_JOBS} (1), burstWhenBatchFull (no), LISTEN/NOTIFY (no)`
  : 'one job every 2 seconds'

async function started (options = {}) {
  const boss = new PgBoss({ connectionString: around.databaseUrl, ...options })
  boss.on('error', error => console.error(String(error)))
  await boss.start()
  return boss
}

main({
  settings: () => ({
    settings: `${described}, pool of 10; bulk: insert of 1,000`,
    documented: 'API, Workers: work(); API, Queues: notify',
    versions: [version('pg-boss'), version('pg'), `node ${process.versions.node}`].join(', ')
  }),
  async prepare () {
    const boss = await started()
    await boss.createQueue(QUEUE, best ? { notify: true } : {})
    await boss.stop({ graceful: false })
  },
  async open () {
    const boss = await started({ supervise: false, schedule: false })
    return {
      enqueue: job => boss.send(QUEUE, job),
      bulk: jobs => boss.insert(QUEUE, jobs.map(job => ({ data: job }))),
      close: () => boss.stop({ graceful: false })
    }
  },
  async work () {
    const boss = await started(best ? { useListenNotify: true } : {})
    const options = best ? { batchSize: BATCH_JOBS, burstWhenBatchFull: true } : {}
    await boss.work(QUEUE, options, async jobs => {
      for (const job of jobs) handled(job.data.sentAt)
    })
    process.once('SIGTERM', async () => {
      await boss.stop()
      process.exit(0)
    })
  },
  unfinished: () => count(UNFINISHED)
})
