// The jobs that this worker runs, by name. The return value is the result. If a handler throws, the
// attempt fails with the error's code. `signal` is aborted when the job is canceled or lost. What
// you assign to `job.progress` is sent with the next renewal. Handlers must be async functions.
export const handlers = {
  async resize({ image, width }, { job, signal }) {
    console.log(`resizing image ${image}, attempt ${job.attempt} of ${job.max_attempts}`);
    return { image, width, height: Math.round((width * 3) / 4) };
  },
};
