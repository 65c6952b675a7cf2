-- The fields of `_Overdue`, in their order.
number, queue, tenant, id, name, correlation_id, attempt, fence, lease_owner, max_attempts, crashes,
alone, suspect
