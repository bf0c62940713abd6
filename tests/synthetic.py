"""A comparison made up from a seed: the shape of a real run at any size, without a model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cacheblend.analysis import pool_edges
from cacheblend.trace import (
    COMPARED,
    Comparison,
    Environment,
    Fidelity,
    Inspection,
    Lane,
    Mode,
    Segment,
    SegmentKind,
    Span,
    StoredAttention,
    Trace,
)

HOSTILE = '<img src=x onerror="window.__pwned=1">'
_WORDS = (
    " the", " model", " cache", " of", " Ada", " Lovelace", " was", " born", " in", " 1815", ",", " and", " she",
    " wrote", " first", " pro", "gram", ".", " engine", " attention", " chunk", "\n", " Île", " 東京", "\t", " who",
)  # fmt: skip


def synthetic_comparison(
    tokens: int = 700, *, layers: int = 30, chunks: int = 6, decoded: int = 24, map_size: int = 96, seed: int = 0
) -> Comparison:
    """Prefix, chunks and suffix filling `tokens`, three modes, spans of every lane and a full inspection."""
    rng = np.random.default_rng(seed)
    segments = _segments(tokens, chunks)
    inspection = _inspection(rng, segments, layers, map_size)
    words = [str(w) for w in rng.choice(_WORDS, tokens)]
    words[segments[1].start + 5] = HOSTILE
    return Comparison(
        question="Who wrote the first program, and when was she born?",
        tokens=tuple(words),
        segments=segments,
        environment=Environment(
            model="synthetic-135M",
            device="cpu",
            dtype="bfloat16",
            threads=2,
            torch_version="0",
            recorded_at="2026-01-01T00:00:00Z",
        ),
        traces=tuple(_trace(mode, tokens, layers, decoded, segments) for mode in COMPARED),
        inspection=inspection,
    )


def _segments(tokens: int, chunks: int) -> tuple[Segment, ...]:
    prefix, suffix = max(4, tokens // 40), max(6, tokens // 20)
    edges = np.linspace(prefix, tokens - suffix, chunks + 1).astype(int)
    middle = tuple(
        Segment(
            kind=SegmentKind.CHUNK, start=int(a), stop=int(b), source=f"report-{i}.pdf · {i + 1}", score=0.8 - 0.05 * i
        )
        for i, (a, b) in enumerate(pairwise(edges))
    )
    first = Segment(kind=SegmentKind.PREFIX, start=0, stop=prefix)
    return (first, *middle, Segment(kind=SegmentKind.SUFFIX, start=tokens - suffix, stop=tokens))


def _inspection(rng: np.random.Generator, segments: tuple[Segment, ...], layers: int, map_size: int) -> Inspection:
    tokens, context = segments[-1].stop, segments[-1].start
    salience = rng.pareto(2.5, tokens) + 0.05
    salience[: segments[1].stop] *= 0.01  # what stands first saw everything before it
    depth = np.linspace(0, 1, layers)[:, None] ** 0.6
    reuse = np.clip(depth * salience * rng.lognormal(0, 0.15, (layers, tokens)) * 0.4, 0, 1.6)
    selected = np.zeros((layers, tokens), dtype=bool)
    selected[:, np.argsort(-salience[:context])[: max(1, context * 15 // 100)]] = True
    selected[0] = selected[:, context:] = True
    blend = np.where(selected, reuse * 0.1, reuse * 0.45)
    kv = {Mode.REUSE: reuse.astype(np.float32), Mode.BLEND: blend.astype(np.float32)}
    attention = {mode: array * np.float32(0.2) for mode, array in kv.items()}
    for array in (*kv.values(), *attention.values()):
        array[0] = 0
    maps = _maps(rng, segments, map_size)
    return Inspection(kv_deviation=kv, attention_deviation=attention, selected=selected, attention=maps)


def _maps(rng: np.random.Generator, segments: tuple[Segment, ...], map_size: int) -> StoredAttention:
    edges = pool_edges(0, segments[-1].stop, map_size)
    centre = (edges[1:] + edges[:-1]) / 2
    distance = np.maximum(centre[:, None] - centre[None, :], 0)
    base = np.exp(-distance / (0.06 * edges[-1])) * 0.5 + 0.03 * rng.random((len(centre), len(centre)))
    base[:, 0] = 0.9  # the sink
    chunk_of = np.searchsorted([s.stop for s in segments], centre, side="right")
    crosses = (chunk_of[:, None] != chunk_of[None, :]) & (chunk_of < len(segments) - 1)[:, None]
    shown = {Mode.FULL: base, Mode.REUSE: np.where(crosses, 0, base), Mode.BLEND: np.where(crosses, base * 0.6, base)}
    codes = {mode: (np.sqrt(np.tril(m)) * 255).astype(np.uint8) for mode, m in shown.items()}
    layers, heads = (0, 10, 29), 2
    stack = {mode: np.broadcast_to(c, (len(layers), 1 + heads, *c.shape)).copy() for mode, c in codes.items()}
    return StoredAttention(layers=layers, num_heads=heads, edges=edges, maps=stack)


def _trace(mode: Mode, tokens: int, layers: int, decoded: int, segments: tuple[Segment, ...]) -> Trace:
    context = segments[-1].start
    share = {Mode.FULL: 1.0, Mode.REUSE: 0.0, Mode.BLEND: 0.15}[mode]
    return Trace(
        mode=mode,
        policy={Mode.FULL: "all rows", Mode.REUSE: "no rows", Mode.BLEND: "HKVD single, by value"}[mode],
        ratio=share,
        answer="Ada Lovelace, in 1815.",
        answer_ids=tuple(range(decoded + 1)),
        spans=_spans(mode, tokens, layers, decoded, share),
        recomputed_tokens=round(share * context),
        recomputed_share=share,
        is_warm=True,
        fidelity=Fidelity(first_token_kl=0.4 * (1 - share), mean_kl=0.3, top1_agreement=0.9, f1_to_full=0.8),
    )


def _spans(mode: Mode, tokens: int, layers: int, decoded: int, share: float) -> tuple[Span, ...]:
    spans: list[Span] = []
    now = 0.0

    def add(lane: Lane, name: str, duration: float, layer: int | None = None) -> None:
        nonlocal now
        spans.append(Span(lane=lane, name=name, start_ms=now, end_ms=now + duration, layer=layer))
        now += duration

    if mode is not Mode.FULL:
        add(Lane.LOOKUP, "find chunk caches", 0.3)
    for layer in range(layers):
        if mode is not Mode.FULL:
            add(Lane.LOAD, f"load layer {layer}", 0.05, layer)
            add(Lane.PLACE, f"place layer {layer}", 0.08, layer)
        add(Lane.COMPUTE, f"layer {layer}", 1 + tokens * 0.03 * max(share, 0.02), layer)
    add(Lane.FIRST_TOKEN, "first token", 2.0)
    for i in range(decoded):
        add(Lane.DECODE, f"token {i + 2}", 14.0)
    return tuple(spans)
