// Graphile Worker.

import { around, best, count, handled, load, main, version } from './contract.mjs'

const { Logger, makeWorkerUtils, run, runMigrations } = await load('graphile-worker')

const CONCURRENT_JOBS = 24
const LOCAL_QUEUE_JOBS = 500
const UNFINISHED = 'SELECT count(*) FROM graphile_worker._private_jobs'

const logger = new Logger(() => () => {})
const connection = { connectionString: around.databaseUrl, logger }
const chosen = best
  ? {
      concurrentJobs: CONCURRENT_JOBS,
      maxPoolSize: CONCURRENT_JOBS + 1,
      localQueue: { size: LOCAL_QUEUE_JOBS },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0
    }
  : {}
const described = best
  ? `concurrentJobs ${CONCURRENT_JOBS} (1), localQueue of ${LOCAL_QUEUE_JOBS} (none),` +
    ` completeJobBatchDelay 0 (none), pool of ${CONCURRENT_JOBS + 1} (10)`
  : 'concurrentJobs 1, no localQueue, no batches, pool of 10'

const payload = job => ({ sentAt: job.sentAt, padding: job.padding })

main({
  settings: () => ({
    settings: `${described}; bulk: addJobs of 1,000`,
    documented: 'Docs, Performance: Quick stats',
    versions: [version('graphile-worker'), version('pg'), `node ${process.versions.node}`].join(', ')
  }),
  prepare: () => runMigrations(connection),
  async open () {
    const utils = await makeWorkerUtils(connection)
    return {
      enqueue: job => utils.addJob('noop', payload(job)),
      bulk: jobs => utils.addJobs(jobs.map(job => ({ identifier: 'noop', payload: payload(job) }))),
      close: () => utils.release()
    }
  },
  async work () {
    const taskList = { noop: async job => handled(job.sentAt) }
    await run({ preset: { worker: { ...connection, ...chosen } }, taskList })
  },
  unfinished: () => count(UNFINISHED)
})
