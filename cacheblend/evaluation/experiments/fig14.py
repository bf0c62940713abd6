"""Figure 14: time to first token against the rate at which requests come, and the rate that each mode sustains.

Every request is really served, one after another, on a store of the mode's own; how long it would have waited follows
from when requests come and how long each was served (load.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cacheblend.config import BlendConfig
from cacheblend.decoding import decode
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.timed import first_token_ms, fitting, plan_of, warm_up, with_store
from cacheblend.evaluation.load import Served, capacity, stream, sustained, ttfts
from cacheblend.evaluation.points import Point
from cacheblend.trace import Lane, Mode

MODES = (Mode.FULL, Mode.PREFIX, Mode.REUSE, Mode.BLEND)
TIMES = 4  # every question, with its chunks in another order each time; the paper has four wordings of each
STORE_SHARE = 0.5  # of what all chunks need
LIMIT = 3.0  # times the TTFT of full without waiting: above it, a rate is not sustained
GRID = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12)  # × full's
BUSIEST = 0.96  # where a mode is kept busier than this, TTFT says how long one looked
MEDIAN, TAIL, SUSTAINED = "p50", "p95", "sustained"

Serve = Callable[[Asked], Served]


def run(bench: Bench) -> list[Point]:
    """Serve the stream in every mode, then place its times on the grid of rates."""
    asked = fitting(bench)
    if not asked:
        return []
    warm_up(bench, asked[0], (Mode.FULL, Mode.REUSE, Mode.BLEND))
    room = store_bytes(bench, asked)
    servers = {mode: Server(bench, mode, room) for mode in MODES}
    served = serve_all(bench, stream(asked, TIMES), {mode: server.serve for mode, server in servers.items()})
    return points_of(served, {mode: server.describe() for mode, server in servers.items()})


def serve_all(bench: Bench, requests: Sequence[Asked], serve: Mapping[Mode, Serve]) -> dict[Mode, list[Served]]:
    """Every request in order; the time between two of them is not slept.

    Each is served in all modes before the next, so that a machine that slows down slows all of them.
    """
    served: dict[Mode, list[Served]] = {mode: [] for mode in serve}
    for number, request in enumerate(requests):
        for i, (mode, answer) in enumerate(serve.items()):
            step = number * len(serve) + i
            bench.step(step, len(serve) * len(requests), f"{mode}: request {number + 1} of {len(requests)}")
            served[mode].append(answer(request))
    bench.step(len(serve) * len(requests), len(serve) * len(requests), "done")
    return served


def points_of(served: Mapping[Mode, list[Served]], labels: Mapping[Mode, str]) -> list[Point]:
    """Panels p50 and p95: x requests a second (0: nobody waits), y TTFT in seconds; and what each mode sustains.

    Panel sustained: x the rate, y the TTFT it must not exceed; its label says what the store did.
    """
    most = capacity(served[Mode.FULL])
    limit_s = LIMIT * float(np.median([one.ttft_s for one in served[Mode.FULL]]))
    points = []
    for mode, times in served.items():
        n, at_rest = len(times), np.asarray([one.ttft_s for one in times])
        own = capacity(times)
        for rate in (0.0, *(most * share for share in GRID if most * share <= BUSIEST * own)):
            ttft_s = ttfts(times, rate) if rate else at_rest
            label = f"server busy {100 * rate / own:.0f} % of the time" if rate else "nobody waits"
            for panel, share in ((MEDIAN, 0.5), (TAIL, 0.95)):
                y = float(np.quantile(ttft_s, share))
                points.append(Point(panel=panel, series=mode, x=rate, y=y, n=n, label=label))
        x = sustained(times, limit_s)
        points.append(Point(panel=SUSTAINED, series=mode, x=x, y=limit_s, n=n, label=labels[mode]))
    return points


def store_bytes(bench: Bench, asked: Sequence[Asked]) -> int:
    """Room for half of what all chunks need, and for the chunks of any one question."""
    each = [{hit.chunk.token_ids for hit in one.hits} for one in asked]
    prefix = len(bench.engine.prompts.prefix)
    every = prefix + sum(map(len, set().union(*each)))
    largest = prefix + max((sum(map(len, chunks)) for chunks in each), default=0)
    return bench.engine.kv_bytes_per_token * max(int(STORE_SHARE * every), largest, 1)


class Server:
    """One mode on an empty store of its own."""

    def __init__(self, bench: Bench, mode: Mode, room: int) -> None:
        self._bench, self._mode, self._room = bench, mode, room
        self.engine = with_store(bench.engine, room)

    def serve(self, request: Asked) -> Served:
        """Answer one request. The server is busy until the answer is done and what is new has been stored."""
        bench, engine = self._bench, self.engine
        plan = plan_of(bench, request.question, request.hits)
        blend, most = BlendConfig(ratio=bench.ratio), bench.max_new_tokens
        made = engine.prefill_plan(plan, self._mode, blend, reserve=most, cancel=bench.cancel)
        for _ in decode(
            engine.model,
            made.cache,
            made.logits,
            max_new_tokens=most,
            stop_ids=engine.stop_ids,
            spans=made.spans,
            cancel=bench.cancel,
        ):
            pass
        with made.spans.span(Lane.LOOKUP, "store"):
            made.cache.crop(plan.num_tokens)
            engine.keep(plan, made)
            engine.store.settle()
        return Served(first_token_ms(made) / 1000, max(span.end_ms for span in made.spans.spans()) / 1000)

    def describe(self) -> str:
        """What the store did for this mode."""
        if self._mode is Mode.FULL:
            return "nothing stored"
        (stats,) = self.engine.store.stats
        asked = max(stats.hits + stats.misses, 1)
        return (
            f"{100 * stats.hits / asked:.0f} % of {stats.hits + stats.misses} look-ups found in a store of "
            f"{self._room / 1e6:.0f} MB, {stats.evictions} evictions"
        )
