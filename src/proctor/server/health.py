"""Whether the server lives (`/health`, open to all) and what it counts (`/metrics`, for Prometheus)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.responses import Response

from proctor.protocol.states import TaskState
from proctor.server.answers import REFUSALS
from proctor.server.front import Front
from proctor.store.tables import approvals, task_queue
from proctor.trace.metrics import CONTENT_TYPE

__all__ = ["Health", "ServerGauges", "router"]

ACTIVE = (TaskState.IN_PROGRESS.value, TaskState.VERIFYING.value)


class Health(BaseModel):
    """That it lives, and how much runs."""

    status: str
    active_sessions: int


class ServerGauges(Collector):
    """Facts read from the database when somebody asks for them."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def collect(self) -> Iterable[Metric]:
        """Read them; runs in a thread."""
        tasks = GaugeMetricFamily("proctor_tasks", "Tasks by state.", labels=["status"])
        counts = dict.fromkeys((state.value for state in TaskState), 0) | _counts(self._front)
        for status, count in counts.items():
            tasks.add_metric([status], count)
        yield tasks
        yield GaugeMetricFamily("proctor_approvals_pending", "Open questions.", value=_open(self._front))
        yield GaugeMetricFamily("proctor_sockets", "Open WebSockets.", value=self._front.sockets)
        yield GaugeMetricFamily("proctor_viewers", "Who watches.", value=len(self._front.hub.viewers))


def _counts(front: Front) -> dict[str, int]:
    query = sa.select(task_queue.c.status, sa.func.count()).group_by(task_queue.c.status)
    with front.app.database.read() as connection:
        return {row.status: row[1] for row in connection.execute(query)}


def _open(front: Front) -> int:
    query = sa.select(sa.func.count()).where(approvals.c.status == "pending")
    with front.app.database.read() as connection:
        return int(connection.execute(query).scalar() or 0)


def router(front: Front, metrics: CollectorRegistry) -> APIRouter:
    """The two routes."""
    routes = APIRouter(tags=["health"], responses=REFUSALS)

    @routes.get("/health", response_model=Health, summary="Whether the server lives")
    async def health() -> Any:
        counts = await asyncio.to_thread(_counts, front)
        return {"status": "healthy", "active_sessions": sum(counts.get(state, 0) for state in ACTIVE)}

    @routes.get("/metrics", response_class=Response, summary="Metrics for Prometheus")
    async def scrape() -> Response:
        return Response(await asyncio.to_thread(generate_latest, metrics), media_type=CONTENT_TYPE)

    return routes
