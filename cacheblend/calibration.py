"""Measuring what the controller predicts from: a model's compute profile.

A profile comes from the fusor itself, run on a few layers at some lengths and ratios, and is kept in the user's cache
directory. Knows nothing of requests, stores or prices.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from cacheblend import cancel as cancelling
from cacheblend.cost import ComputeProfile
from cacheblend.fit import nonnegative_fit
from cacheblend.folders import cache_directory
from cacheblend.fusion.attention import MAX_BLOCKS, MIN_BLOCK_QUERIES
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import HKVD
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.schedule import CHECK_LAYER
from cacheblend.trace import Lane, Span

logger = logging.getLogger(__name__)

LONGEST = 3072  # context tokens of the longest run
SHORTER = (12, 3, 1)  # the lengths are the longest divided by these
SUFFIX_TOKENS = 24
RATIOS = (0.0, 0.1, 0.3, 0.6)
# One layer of all rows, the one that chooses, and two of those chosen stand for all.
NUM_LAYERS = CHECK_LAYER + 3
REPEATS = 3
MIN_LENGTHS = 2  # without a second length, what a row costs and what attention costs cannot be told apart
BUDGET_S = 8.0

Progress = Callable[[int, int], None]


# Compute


@dataclass(frozen=True, slots=True)
class _Step:
    """One layer's steps, measured: how many rows came in and went on, and milliseconds."""

    layer: int
    came: int
    kept: int
    num_tokens: int
    suffix_tokens: int
    project_ms: float
    place_ms: float
    finish_ms: float


@dataclass(frozen=True, slots=True)
class _Run:
    """One fuse, measured."""

    steps: tuple[_Step, ...]
    start_ms: float
    first_token_ms: float


def calibrate(
    model: LayerwiseModel,
    *,
    label: str = "",
    longest: int = LONGEST,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> ComputeProfile:
    """Measure what a layer costs, in a few seconds; Cancelled when stopped.

    Medians of repeats at three lengths and some ratios, then non-negative least squares of relative errors. Lengths
    that would take too long are repeated less often, or left out from the third on.
    """
    longest = min(longest, model.context_limit - SUFFIX_TOKENS)
    lengths = [max(longest // shorter, 1) for shorter in SHORTER]
    # Other layers each time: in a real run a layer's weights come from memory, not from the processor's cache.
    parts = (model.part(start, NUM_LAYERS) for start in itertools.count(0, NUM_LAYERS))
    _fuse_once(next(parts), lengths[0], RATIOS[1], cancel)  # not counted: kernels are chosen, memory is taken
    runs: list[_Run] = []
    began, round_s = time.perf_counter(), 0.0
    for done, length in enumerate(lengths):
        if progress is not None:
            progress(done, len(lengths))
        # Between rows, whose cost grows in proportion, and attention, whose grows with the square.
        expected_s = round_s * (length / lengths[done - 1]) ** 1.5
        left_s = BUDGET_S - (time.perf_counter() - began)
        num_repeats = REPEATS if expected_s == 0 else min(REPEATS, int(left_s / expected_s))
        if num_repeats < 1 and done >= MIN_LENGTHS:
            logger.info("calibrated on up to %d tokens only: longer prompts take too long", lengths[done - 1])
            break
        round_began = time.perf_counter()
        repeats = [[_fuse_once(next(parts), length, r, cancel) for r in RATIOS] for _ in range(max(num_repeats, 1))]
        round_s = (time.perf_counter() - round_began) / len(repeats)
        runs += [_median(same) for same in zip(*repeats, strict=True)]
    if progress is not None:
        progress(len(lengths), len(lengths))
    return _fitted(model, label, runs)


class _Ready:
    """A source whose layers are already there, so that only computing is measured."""

    def __init__(self, model: LayerwiseModel, num_tokens: int) -> None:
        shape = (num_tokens, model.kv_heads, model.head_dim)
        like = torch.empty(shape, dtype=model.dtype, device=model.device)
        self._layers = [LayerKV(torch.randn_like(like), torch.randn_like(like)) for _ in range(NUM_LAYERS)]

    def layer(self, index: int) -> LayerKV:
        """The layer's own buffers."""
        return self._layers[index]


def _fuse_once(model: LayerwiseModel, context_tokens: int, ratio: float, cancel: threading.Event | None) -> _Run:
    """Run the fusor over a few of the model's layers on random tokens."""
    cancelling.check(cancel)
    ids = torch.randint(model.vocab, (context_tokens + SUFFIX_TOKENS,), generator=torch.Generator().manual_seed(0))
    plan = PromptPlan.of((), [ids[:context_tokens].tolist()], ids[context_tokens:].tolist())
    source = _Ready(model, plan.num_tokens)
    spans = SpanRecorder(model.device)
    kept = fuse(model, plan, source, HKVD(ratio=ratio), spans=spans, cancel=cancel).kept_per_layer
    return _read_run(spans.spans(), plan, ratio, kept)


def _read_run(spans: Sequence[Span], plan: PromptPlan, ratio: float, kept: Sequence[int]) -> _Run:
    """Spans to steps. What lies between two spans (masks, gathering rows) counts to the step before it."""
    first_token = next(s for s in spans if s.lane is Lane.FIRST_TOKEN)
    places = [s for s in spans if s.lane is Lane.PLACE]
    begins = [min(s.start_ms for s in spans if s.layer == place.layer) for place in places]
    ends = [*begins[1:], first_token.start_ms]
    suffix = plan.num_tokens - plan.context_tokens
    went_on = [rows + suffix for rows in kept]
    came_in = [plan.num_tokens if ratio > 0 else suffix, *went_on[:-1]]
    steps = tuple(
        _Step(
            layer=layer,
            came=came,
            kept=rows,
            num_tokens=plan.num_tokens,
            suffix_tokens=suffix,
            project_ms=place.start_ms - begin,
            place_ms=place.duration_ms,
            finish_ms=end - place.end_ms,
        )
        for layer, (came, rows, place, begin, end) in enumerate(
            zip(came_in, went_on, places, begins, ends, strict=True)
        )
    )
    return _Run(steps, begins[0], first_token.duration_ms)


def _median(runs: Sequence[_Run]) -> _Run:
    """Repeats of the same run to one, time by time."""

    def middle(of: Iterable[float]) -> float:
        return statistics.median(of)

    steps = tuple(
        _Step(
            layer=same[0].layer,
            came=same[0].came,
            kept=same[0].kept,
            num_tokens=same[0].num_tokens,
            suffix_tokens=same[0].suffix_tokens,
            project_ms=middle(step.project_ms for step in same),
            place_ms=middle(step.place_ms for step in same),
            finish_ms=middle(step.finish_ms for step in same),
        )
        for same in zip(*(run.steps for run in runs), strict=True)
    )
    return _Run(steps, middle(run.start_ms for run in runs), middle(run.first_token_ms for run in runs))


def _fitted(model: LayerwiseModel, label: str, runs: Sequence[_Run]) -> ComputeProfile:
    """Coefficients from measured steps."""
    blank = ComputeProfile(
        label=label,
        num_layers=model.num_layers,
        kv_bytes=model.kv_bytes_per_token // model.num_layers,
        max_blocks=MAX_BLOCKS,
        block_rows=MIN_BLOCK_QUERIES * model.kv_heads / model.num_heads,
        check_layer=CHECK_LAYER,
    )
    steps = [step for run in runs for step in run.steps]
    chosen = [step for step in steps if step.layer == CHECK_LAYER and step.kept < step.came]
    plain = [step for step in steps if step not in chosen]
    project = nonnegative_fit([(1.0, s.came) for s in plain], [s.project_ms for s in plain])
    select = nonnegative_fit(
        [(s.came, s.kept * s.num_tokens) for s in chosen],
        [max(s.project_ms - project[0] - project[1] * s.came, 0.0) for s in chosen],
    )
    finish = nonnegative_fit([_finish_features(blank, s) for s in steps], [s.finish_ms for s in steps])
    place = nonnegative_fit([(s.num_tokens,) for s in steps], [s.place_ms for s in steps])
    start = nonnegative_fit([(run.steps[0].came,) for run in runs], [run.start_ms for run in runs])
    measured = {
        "project_fixed": project[0],
        "project_row": project[1],
        "select_row": select[0],
        "mask_cell": select[1],
        "finish_fixed": finish[0],
        "finish_row": finish[1],
        "causal_cell": finish[2],
        "masked_cell": finish[3],
        "place_row": place[0],
        "start_row": start[0],
        "first_token": statistics.median(run.first_token_ms for run in runs),
    }
    return ComputeProfile(**{**asdict(blank), **measured})


def _finish_features(profile: ComputeProfile, step: _Step) -> tuple[float, float, float, float]:
    """1, rows, cells where the whole prompt is computed, and cells where some rows are."""
    if step.kept == step.num_tokens:
        return 1.0, step.kept, step.num_tokens**2 / 2, 0.0
    spread = step.kept - step.suffix_tokens
    return 1.0, step.kept, 0.0, profile.visited_cells(spread, step.suffix_tokens, step.num_tokens)


# Keeping profiles


def profile_for(
    model: LayerwiseModel,
    *,
    label: str = "",
    recalibrate: bool = False,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> ComputeProfile:
    """The kept profile of this model on this machine, calibrated now if there is none or `recalibrate` asks for it."""
    key = profile_key(model)
    kept = None if recalibrate else load_profile(key)
    if kept is not None:
        return kept
    profile = calibrate(model, label=label, progress=progress, cancel=cancel)
    save_profile(key, profile)
    return profile


def profile_key(model: LayerwiseModel) -> str:
    """Names what a profile depends on: architecture (not weights), dtype, device, threads, torch and machine."""
    is_cuda = model.device.type == "cuda"
    device = torch.cuda.get_device_name(model.device) if is_cuda else str(model.device)
    config = model.hf_model.config.to_json_string(use_diff=False)
    parts = (config, model.dtype, device, torch.get_num_threads(), torch.__version__, platform.node())
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def load_profile(key: str) -> ComputeProfile | None:
    """The profile kept under a key; None if there is none, or if its file is damaged, which is logged."""
    path = _path(key)
    try:
        return ComputeProfile(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.warning("the compute profile %s cannot be used (%s) and is measured again", path.name, error)
        return None


def save_profile(key: str, profile: ComputeProfile) -> None:
    """Keep a profile; a folder that cannot be written is logged, and the profile measured again next time."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(asdict(profile), file, indent=1)
        os.replace(file.name, path)
    except OSError as error:
        logger.warning("the compute profile could not be kept (%s)", error)


def _path(key: str) -> Path:
    return cache_directory() / "profiles" / f"{key}.json"
