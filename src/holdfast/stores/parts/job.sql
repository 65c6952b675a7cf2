-- The fields of `Job` that live and ended jobs have alike.
{unchanged},
state, attempt AS attempts, snoozes, releases, crashes, fence, finished_at, result, error_code,
error_text
