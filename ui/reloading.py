"""The question on screen once more, with its caches brought in another way. Knows nothing of Gradio or figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cacheblend.events import Compared, FirstToken, Started
from cacheblend.loading import LOSSLESS, LoadConfig, LoadOrder
from cacheblend.policies import PAPERS, POLICY
from cacheblend.trace import Mode
from ui import asking, devices, notices
from ui.background import stream
from ui.inspecting import GONE
from ui.loading import with_chosen_ratio
from ui.preparing import prepared, recipes_of
from ui.sessions import Reloaded, Run
from ui.studio import RECORDED, Studio
from ui.turns import undisturbed

if TYPE_CHECKING:
    import threading

    from cacheblend.config import BlendConfig

NO_DOCUMENTS = (
    "This run was recorded earlier, and its documents are not here: ask a question of your own under Compare, then run "
    "it again here on other devices."
)
AUTO, TARGET = "auto", "target"  # the controller chooses the ratio; a level is chosen for each chunk
MAX_TARGET_MS = 600_000
MEASURING = "Measuring what computing costs on this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How the caches are to come in, and whether the controller chooses the ratio or the run's own is kept."""

    loading: LoadConfig
    chooses_ratio: bool


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is; the result comes last."""

    status: str
    reloaded: Reloaded | None = None


def parse(
    device: str,
    bandwidth: float,
    unit: str,
    latency_ms: float,
    is_pipelined: bool,
    codec: str,
    target_ms: float,
    order: str,
    free_percent: float,
    ratio: str,
) -> Wish:
    """Read the form's raw values; whatever they are, the result is a Wish or a ValueError for the visitor.

    free_percent: of the processor, for Cake alone, which computes beside a busy one.
    """
    loading = LoadConfig(
        pipelined=bool(is_pipelined),
        device=devices.chosen(device, bandwidth, unit, latency_ms),
        codec=LOSSLESS if codec == TARGET else str(codec),
        target_ms=_target(target_ms) if codec == TARGET else None,
        order=LoadOrder(order),
        compute_share=_share(free_percent) if order == LoadOrder.CAKE else 1.0,
    )
    return Wish(loading=loading, chooses_ratio=ratio == AUTO)


def _share(percent: float) -> float:
    if not isinstance(percent, int | float) or not 1 <= percent <= 100:
        raise ValueError("The free share of the processor must lie between 1 and 100 %.")
    return percent / 100


def _target(target_ms: float) -> float:
    if not isinstance(target_ms, int | float) or not 0 < target_ms < MAX_TARGET_MS:
        raise ValueError(f"The target must be a number of milliseconds above 0 and below {MAX_TARGET_MS:,}.")
    return target_ms


def why_not(run: Run | None) -> str | None:
    """Why a run cannot be made again, as a sentence; None if it can."""
    if run is None:
        return GONE
    return NO_DOCUMENTS if run.id == RECORDED or run.hits is None else None


def reload(studio: Studio, session_id: str | None, run_id: str, wish: Wish) -> Iterator[Step]:
    """Run blend on the same chunks with these settings, and keep the result with the visitor's run."""
    session = studio.sessions.find(session_id)
    run = studio.recorded if run_id == RECORDED else session.runs.get(run_id) if session else None
    refusal = why_not(run)
    if refusal or session is None or run is None or run.hits is None or run.blend is None:
        raise ValueError(refusal or GONE)
    _check(run.blend, wish)
    hits, blend = run.hits, with_chosen_ratio(run.blend) if wish.chooses_ratio else run.blend
    with session.job() as cancel:
        engine = studio.engine_of(session, _nothing)
        yield from measured(studio, cancel)
        yield from prepared(engine, session, [hit.chunk for hit in hits], recipes_of([Mode.BLEND], blend), cancel, Step)
        yield Step(notices.progress("Getting the caches ready"))
        events = engine.compare(
            run.comparison.question,
            hits,
            modes=(Mode.BLEND,),
            blend=blend,
            loading=wish.loading,
            max_new_tokens=run.max_new_tokens,
            cancel=cancel,
        )
        for event in undisturbed(events, studio.turn):
            match event:
                case Started():
                    yield Step(notices.progress("Loading and computing up to the first token"))
                    time.sleep(asking.SETTLE_S)
                case FirstToken():
                    yield Step(notices.progress("Answering"))
                case Compared():
                    (trace,) = event.comparison.traces
                    advice = engine.advise(event.comparison, trace, blend, wish.loading)
                    made = Reloaded(trace=trace, loading=wish.loading, choice=advice)
                    session.keep(replace(session.runs.get(run.id, run), reloaded=made))
                    yield Step(notices.IDLE, made)


def _check(blend: BlendConfig, wish: Wish) -> None:
    """ValueError for what the controller or Cake cannot do with the run's policy."""
    about = POLICY[blend.policy]
    if wish.chooses_ratio and blend.policy != PAPERS:
        raise ValueError(
            f"The controller knows HKVD alone, and this run chose its tokens by {about.title}: keep the run's ratio, "
            "or ask again with CacheBlend (paper)."
        )
    if wish.loading.order is LoadOrder.CAKE and about.waits:
        raise ValueError(
            f"Cake computes while it loads, and {about.title} must see all caches before it begins: load layer by "
            "layer, or ask again with CacheBlend (paper)."
        )


def measured(studio: Studio, cancel: threading.Event, *, again: bool = False) -> Generator[Step, None, None]:
    """Measure computing and tiers if that was never done, or `again`."""
    engine = studio.engine(_nothing)
    if engine.machine.profile is not None and engine.machine.devices and not again:
        return

    def job(tell: Callable[[int, int], None]) -> None:
        with studio.turn:
            engine.calibrate(recalibrate=again, progress=tell, cancel=cancel)

    yield Step(notices.progress(MEASURING))
    yield from stream(job, lambda done, total: Step(notices.progress(MEASURING, done, total)))


def _nothing(_: str) -> None:
    """The model is loaded: there is nothing to say."""
