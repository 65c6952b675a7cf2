"""The delivery job: one attempt, one request, one report."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from holdfast import Context, Holdfast, JobFunction, Retry
from holdfast.webhooks import limits
from holdfast.webhooks.delivery import CANCELED, Deliverer, Delivery
from holdfast.webhooks.events import log_attempt, log_failed_job
from holdfast.webhooks.policy import Policy
from holdfast.webhooks.sender import Report, open_client, send

DELIVERY: Final = "webhooks.delivery"
ORCHESTRATION: Final = "webhooks.orchestration"
_AFTER_A_LOST_LEASE: Final = Retry.exponential(max_attempts=limits.LEASES_MAX, base=1, cap=10)


def declare_delivery(hf: Holdfast, deliverer: Deliverer) -> JobFunction[[UUID, int], None]:
    async def wake_orchestrator(connection: Any) -> None:
        await hf.queues.wake(ORCHESTRATION, connection=connection)

    async def fail(ctx: Context, error: Exception) -> None:
        """Report the job's own failure, if it is its last."""
        judged = ctx.judge(error)
        if not judged.state.ended:
            return
        async with ctx.failing(error) as connection:
            failed = await deliverer.report_failure(connection, ctx.job_id, judged.code)
            if failed is not None:
                await wake_orchestrator(connection)
        if failed is not None:
            log_failed_job(ctx.job_id, failed, judged.code)

    @hf.job(
        name="webhooks.deliver",
        queue=DELIVERY,
        retry=_AFTER_A_LOST_LEASE,
        timeout_seconds=2 * limits.TIMEOUT_SECONDS_MAX,
    )
    async def deliver(ctx: Context, saga_id: UUID, attempt_no: int) -> None:
        try:
            delivery, report = await _send(hf, deliverer, ctx.job_id)
            async with ctx.completing() as connection:
                await deliverer.report(connection, ctx.job_id, delivery, report)
                await wake_orchestrator(connection)
        except Exception as error:
            await fail(ctx, error)
            raise
        log_attempt(ctx.job_id, delivery, report)

    return deliver


async def _send(hf: Holdfast, deliverer: Deliverer, job_id: UUID) -> tuple[Delivery, Report]:
    async with hf.transaction(read_only=True) as connection:
        delivery = await deliverer.find(connection, job_id)
        if why_not := delivery.why_not:
            return delivery, Report(duration_ms=0, error_code=CANCELED, error_text=why_not)
        request, echoes = await deliverer.sign(connection, delivery)
    policy = Policy.decode(delivery.policy)
    async with open_client(policy) as client:
        return delivery, await send(client, policy, delivery.url, request, echoes)
