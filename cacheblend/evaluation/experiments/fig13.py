"""Figure 13: blend beside MapReduce and MapRerank, which ask every chunk alone.

Knows nothing of pictures.
"""

from __future__ import annotations

from statistics import median

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.rounds import Round, Setting, rounds
from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode

GOLD, TO_FULL = "F1 against the gold answer", "F1 to full's answer"
MODES = (Mode.BLEND, Mode.MAP_REDUCE, Mode.MAP_RERANK)


def run(bench: Bench) -> list[Point]:
    """Series are modes; x: TTFT divided by full's of the same question, median.

    y: F1 against gold answers where some question has one, of those questions; else of the answer to full's.
    """
    has_gold = any(one.answers for one in bench.asked)
    modes = (Mode.FULL, *MODES)
    f1s: dict[Mode, list[float | None]] = {mode: [] for mode in modes}
    shares: dict[Mode, list[float]] = {mode: [] for mode in modes}
    unread, replies = 0, 0
    settings = [Setting(mode.value, mode, BlendConfig(ratio=bench.ratio)) for mode in MODES]
    for done in rounds(bench, settings, timed=True):
        traces = (done.full, *done.traces)
        for mode, trace, f1 in zip(modes, traces, (done.full_f1, *done.f1), strict=True):
            f1s[mode].append(f1 if has_gold else trace.f1_to_full)
            shares[mode].append(trace.ttft_ms / done.full.ttft_ms)
        scores = _scores(done)
        unread, replies = unread + sum(score is None for score in scores), replies + len(scores)
    if unread:
        bench.left_out.append(
            f"MapRerank: {unread} of {replies} replies carried no score that could be read; each counts as 0."
        )
    return [
        point
        for mode in modes
        for point in mean_points(
            f1s[mode],
            panel=GOLD if has_gold else TO_FULL,
            series=mode.value,
            x=median(shares[mode]) if shares[mode] else 0.0,
            label=f"{unread} of {replies} replies without a readable score" if mode is Mode.MAP_RERANK else "",
        )
    ]


def _scores(done: Round) -> list[int | None]:
    """What each chunk's reply in MapRerank trusted itself with; None where that could not be read."""
    return [reply.score for trace in done.traces if trace.mode is Mode.MAP_RERANK for reply in trace.replies]
