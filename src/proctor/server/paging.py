"""Lists in pages: the newest first, each page names where the next one begins. No list without a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import sqlalchemy as sa
from fastapi import Query
from pydantic import BaseModel, Field

from proctor.protocol.errors import NotFoundError

__all__ = ["MOST", "After", "Limit", "Page", "page_of"]

MOST: Final = 500
Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
After = Annotated[
    str | None, Query(min_length=1, max_length=200, description="`next` of the page before this one.")
]


class Page(BaseModel):
    """One page of a list."""

    items: list[dict[str, Any]]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


def page_of(
    connection: sa.Connection,
    query: sa.Select[Any],
    order: tuple[sa.Column[Any], sa.Column[Any]],
    show: Callable[[Mapping[Any, Any]], dict[str, Any]],
    *,
    limit: int,
    after: str | None,
) -> dict[str, Any]:
    """One page by moment and key; a row that has left since does not disturb, one that never was is 404."""
    moment, key = order
    if after is not None:
        place = connection.execute(sa.select(moment).where(key == after)).scalar()
        if place is None:
            raise NotFoundError(kind="place in the list", name=after[:80], cure="Begin without `after`.")
        query = query.where(sa.or_(moment < place, sa.and_(moment == place, key < after)))
    rows = connection.execute(query.order_by(moment.desc(), key.desc()).limit(limit + 1)).mappings().all()
    shown = rows[:limit]
    return {
        "items": [show(row) for row in shown],
        "next": str(shown[-1][key.name]) if len(rows) > limit else None,
    }
