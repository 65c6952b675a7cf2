"""Log records that name the job whose handler logs them."""

from __future__ import annotations

import logging

from holdfast.context import current_context


class LogFilter(logging.Filter):
    """Add `job_id`, `job_name`, `tenant`, `attempt` and `correlation_id` to every log record.

    `holdfast worker` does this in the logging that it sets up. If you set up your own, add the
    filter to its handlers: `handler.addFilter(LogFilter())`. Outside of a handler, the values are
    None. A value that you log yourself with `extra=` stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes. No record is dropped."""
        context = current_context.get()
        job = None if context is None else context._job
        values = {
            "job_id": job and str(job.id),
            "job_name": job and job.name,
            "tenant": job and job.tenant,
            "attempt": job and job.attempt,
            "correlation_id": job and job.correlation_id,
        }
        for name, value in values.items():
            record.__dict__.setdefault(name, value)
        return True
