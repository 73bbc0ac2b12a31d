"""Range queries of any length: split by time and by shard, asked for in parallel, put together.

Times are multiples of the step and every time belongs to exactly one request, so that no point is
lost or doubled at a seam. A request that proves too large is cut in two, by shard, then by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import decode_number
from equipoise.adapters.prometheus.errors import SPLITTABLE, QueryFailed, TooManySeries
from equipoise.adapters.prometheus.matrix import Duplicates, Float, Grid, Matrix, concatenate, decode_matrix
from equipoise.adapters.prometheus.promql import Matcher, rounded
from equipoise.adapters.prometheus.series import POINT_BYTES
from equipoise.adapters.prometheus.settings import CADVISOR, Names
from equipoise.adapters.prometheus.shards import Shard

Build = Callable[[Sequence[Matcher]], str]


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """What to ask for, over how long, and how to read it."""

    expression: str | Build
    """Text is split by time only; a builder takes the matchers of a shard."""
    start: float
    end: float
    step_seconds: float
    labels: Sequence[str]
    shards: Sequence[Shard] = ()
    names: Names = CADVISOR
    round_to: float | None = None
    dtype: type[Float] = np.float64
    duplicates: Duplicates = "error"

    def text(self, shard: Shard | None) -> str:
        """Write the query for a shard."""
        if callable(self.expression):
            written = self.expression(shard.matchers(self.names) if shard else ())
        else:
            written = self.expression
        return written if self.round_to is None else rounded(written, self.round_to)


class _Piece(NamedTuple):
    """One request: a shard, over a stretch of the grid."""

    shard: Shard | None
    first: int
    points: int


def query_range(client: Client, query: RangeQuery, on_bytes: Callable[[int], None] | None = None) -> Matrix:
    """Ask for series over a time range, whatever its length."""
    grid = Grid.over(query.start, query.end, query.step_seconds)
    shards: Sequence[Shard | None] = query.shards if callable(query.expression) and query.shards else (None,)
    sizes = client.each(lambda shard: _series(client, query, shard, grid), shards)
    pieces = [
        piece
        for shard, size in zip(shards, sizes, strict=True)
        for piece in _pieces(client, shard, grid, size)
    ]
    answers = client.each(lambda piece: _ask(client, query, grid, piece, on_bytes), pieces)
    parts = [part for answer in answers for part in answer]
    if len(parts) == 1:
        return parts[0][1]
    return concatenate(parts, grid, client.address, dtype=query.dtype, duplicates=query.duplicates)


def _series(client: Client, query: RangeQuery, shard: Shard | None, grid: Grid) -> int:
    """Ask how many series there are at the end; where even that is too heavy, take the limit."""
    limits = client.limits
    if POINT_BYTES * limits.series_max * grid.count <= limits.answer_max_bytes:
        return limits.series_max  # all of them would fit
    counting = f"count({replace(query, round_to=None).text(shard)})"
    try:
        counted = decode_number(client.instant(counting, grid.end_ms / 1000))
    except QueryFailed:
        return client.limits.series_max
    if counted is None or not counted >= 1:
        return 1
    return int(min(client.limits.series_max, counted))


def _pieces(client: Client, shard: Shard | None, grid: Grid, series: int) -> list[_Piece]:
    limits = client.limits
    held = max(1, limits.answer_max_bytes // (POINT_BYTES * series))
    points = min(limits.points_max, held)
    return [_Piece(shard, i, min(points, grid.count - i)) for i in range(0, grid.count, points)]


def _ask(
    client: Client,
    query: RangeQuery,
    grid: Grid,
    piece: _Piece,
    on_bytes: Callable[[int], None] | None,
) -> list[tuple[int, Matrix]]:
    part = grid.part(piece.first, piece.points)
    try:
        answer = client.range(query.text(piece.shard), part, on_bytes)
        matrix = decode_matrix(
            answer,
            query.labels,
            part,
            client.limits.series_max,
            dtype=query.dtype,
            duplicates=query.duplicates,
        )
    except SPLITTABLE as error:
        smaller = _smaller(piece, by_time=not isinstance(error, TooManySeries))
        if not smaller:
            raise
        return [found for one in smaller for found in _ask(client, query, grid, one, on_bytes)]
    return [(piece.first, matrix)]


def _smaller(piece: _Piece, *, by_time: bool) -> list[_Piece]:
    """Cut a piece in two; fewer series help against every limit, less time only against some."""
    shards = piece.shard.smaller() if piece.shard else ()
    if shards:
        return [piece._replace(shard=shard) for shard in shards]
    if not by_time or piece.points == 1:
        return []
    half = piece.points // 2
    return [piece._replace(points=half), _Piece(piece.shard, piece.first + half, piece.points - half)]
