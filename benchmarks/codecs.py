"""What each codec makes of chunk KV: its size, its time, its error, and what it does to the answer.

`python -m benchmarks.codecs --json assets/recorded/codecs.json` measures on the sample collections:

- size against 16 bits a number, and the time of encoding and decoding 512 tokens in every layer, on one thread: the
  fastest of the texts, which are equally long, because whatever else runs on the machine only adds;
  beside it recomputing them, on as many threads as torch has;
- the relative L2 error of keys and values;
- prefix: a text behind its own true prefix, where lossless caches are exact and the codec's error stands alone: mean KL
  of the next token over the 64 tokens that follow, in the engine's dtype (where two roundings that differ in their last
  bit already cost about 0.001) and in float32 (where nothing hides behind rounding);
- reuse and blend of a question's six nearest chunks: KL to full recompute, at the first token and along full's answer,
  and what the codec adds to it.

Under the levels stand variants of one of them: the paper's own choices, one at a time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.decoding import decode, score
from cacheblend.engine import Engine
from cacheblend.fusion.extend import KVCache, extend, prefill_chunk
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.source import ChunkSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKey, ChunkKV, LayerKV
from cacheblend.kv.codecs import CODECS, LEVELS, Codec
from cacheblend.kv.codecs.entropy import Coder
from cacheblend.kv.encoded import EncodedChunk, materialise
from cacheblend.metrics import kl_divergence
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.models.weights import load_model
from cacheblend.prompt import PromptPlan
from cacheblend.samples import Sample, load_samples
from cacheblend.trace import Mode

CHUNK_TOKENS = 512
FOLLOWING = 64  # tokens of text over which the exact setting is judged
ANSWER_TOKENS = 16
MODES = (Mode.REUSE, Mode.BLEND)
GOAL = LEVELS[1]  # the level that the variants vary
VARIANTS: dict[str, Codec] = {
    "bins of the paper, coarser in deeper layers": replace(GOAL, bins=(0.11, 0.22, 0.33)),
    "whole deltas to the anchor": replace(GOAL, shares=(4,)),
    "no deltas": replace(GOAL, shares=(0,)),
    "one step for all tokens": replace(GOAL, powers=(0.0, 0.0)),
    "coder ANS": replace(GOAL, coder=Coder.ANS),
}


@dataclass(frozen=True, slots=True)
class Tripped:
    """KV after a codec, what it took, and its relative L2 errors; times in milliseconds."""

    layers: tuple[LayerKV, ...]
    nbytes: int
    encode_ms: float
    decode_ms: float
    key_error: float
    value_error: float


@dataclass(frozen=True, slots=True)
class Text:
    """One case of the exact setting: KV of a context, the tokens behind it, and the logits at them without a codec.

    prefill_ms: what computing the KV took; exact_logits: the same KV, the model in float32.
    """

    layers: tuple[LayerKV, ...]
    prefill_ms: float
    following: torch.Tensor
    logits: torch.Tensor
    exact_logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, its chunk caches, full's answer to it and full's logits along the answer."""

    plan: PromptPlan
    chunks: tuple[ChunkKV, ...]
    answer: tuple[int, ...]
    logits: torch.Tensor


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype")
    parser.add_argument("--cases", type=int, default=5, help="collections looked at, one text and one question of each")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    engine = Engine.load(args.model, dtype=args.dtype, progress=lambda what: None)
    samples = load_samples()[: args.cases]
    collections = [collection_of(engine, sample) for sample in samples]
    exact = LayerwiseModel(load_model(args.model, dtype="float32", progress=lambda what: None)[0])
    rows = {name: {"codec": name} for name in (*CODECS, *VARIANTS)}
    for name, measured in prefix_rows(engine, exact, collections):
        rows[name] |= measured
    for name, measured in question_rows(engine, samples, collections):
        rows[name] |= measured
    print_rows(list(rows.values()))
    if args.json:
        args.json.write_text(json.dumps(report(engine, samples, list(rows.values())), indent=1) + "\n")


def collection_of(engine: Engine, sample: Sample) -> Collection:
    """A sample's documents in chunks."""
    collection = engine.collection(CHUNK_TOKENS)
    collection.add(sample.paths)
    return collection


# A text behind its own prefix


def prefix_rows(
    engine: Engine, exact: LayerwiseModel, collections: Sequence[Collection]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Size, time, error and the KL of the codec alone, for every codec and variant, means over the samples."""
    texts = [text_of(engine.model, exact, ids_of(collection)) for collection in collections]
    nbytes = 2 * sum(layer.keys.numel() + layer.values.numel() for text in texts for layer in text.layers)
    for name, codec in (CODECS | VARIANTS).items():
        trips = [trip(codec, text.layers) for text in texts]
        pairs = list(zip(texts, trips, strict=True))
        yield (
            name,
            {
                "size_ratio": nbytes / sum(t.nbytes for t in trips),
                "encode_ms": min(t.encode_ms for t in trips),
                "decode_ms": min(t.decode_ms for t in trips),
                "recompute_ms": min(text.prefill_ms for text in texts),
                "key_error": statistics.mean(t.key_error for t in trips),
                "value_error": statistics.mean(t.value_error for t in trips),
                "kl": statistics.mean(added_kl(engine.model, text, t.layers, text.logits) for text, t in pairs),
                "kl_float32": statistics.mean(added_kl(exact, text, t.layers, text.exact_logits) for text, t in pairs),
            },
        )


def ids_of(collection: Collection) -> torch.Tensor:
    """The first documents of a collection as token ids: one chunk and what follows."""
    ids = [token for chunk in collection.chunks for token in chunk.token_ids]
    return torch.tensor(ids[: CHUNK_TOKENS + FOLLOWING])


def text_of(model: LayerwiseModel, exact: LayerwiseModel, ids: torch.Tensor) -> Text:
    """Prefill a context and score what follows it with both models."""
    start = time.perf_counter()
    layers, following = prefill_chunk(model, ids[:-FOLLOWING]), ids[-FOLLOWING:]
    prefill_ms = 1000 * (time.perf_counter() - start)
    scored = (following_logits(each, layers, following) for each in (model, exact))
    return Text(layers, prefill_ms, following, *scored)


def trip(codec: Codec, layers: Sequence[LayerKV]) -> Tripped:
    """Encode every layer, decode every layer."""
    start = time.perf_counter()
    payloads = [codec.encode(layer, index, len(layers)) for index, layer in enumerate(layers)]
    encoded = time.perf_counter()
    out = tuple(LayerKV(torch.empty_like(layer.keys), torch.empty_like(layer.values)) for layer in layers)
    begun = time.perf_counter()
    for payload, layer in zip(payloads, out, strict=True):
        codec.decode(payload, layer)
    decoded = time.perf_counter()
    return Tripped(
        out,
        sum(len(payload) for payload in payloads),
        1000 * (encoded - start),
        1000 * (decoded - begun),
        statistics.mean(error(a.keys, b.keys) for a, b in zip(out, layers, strict=True)),
        statistics.mean(error(a.values, b.values) for a, b in zip(out, layers, strict=True)),
    )


def error(decoded: torch.Tensor, original: torch.Tensor) -> float:
    """Relative L2 distance."""
    return float((decoded.float() - original.float()).norm() / original.float().norm())


def added_kl(model: LayerwiseModel, text: Text, layers: Sequence[LayerKV], logits: torch.Tensor) -> float:
    """Mean KL over the tokens that follow, from `logits`, which the same KV has without the codec."""
    return float(kl_divergence(logits, following_logits(model, layers, text.following)).mean())


@torch.inference_mode()
def following_logits(model: LayerwiseModel, layers: Sequence[LayerKV], following: torch.Tensor) -> torch.Tensor:
    """Next-token logits (following tokens, vocab) behind a context's KV, keys before RoPE."""
    context = layers[0].keys.shape[0]
    cache = KVCache(model, context + len(following))
    rotary = model.rotary(torch.arange(context))
    for index, layer in enumerate(layers):
        keys, values = (part.to(model.dtype, copy=True) for part in (layer.keys, layer.values))
        cache.append(index, model.rotate_(index, keys, rotary), values)
    cache.num_tokens = context
    return extend(model, cache, following)


# Questions over chunks


def question_rows(
    engine: Engine, samples: Sequence[Sample], collections: Sequence[Collection]
) -> Iterator[tuple[str, dict[str, float]]]:
    """KL to full in reuse and blend for every codec, and what the codec adds, means over one question a sample."""
    questions = [question_of(engine, *pair) for pair in zip(samples, collections, strict=True)]
    lossless: dict[Mode, list[torch.Tensor]] = {}
    for name, codec in CODECS.items():
        decoded = [[materialise(EncodedChunk.of(chunk, codec)) for chunk in q.chunks] for q in questions]
        row: dict[str, float] = {}
        for mode in MODES:
            found = [mode_logits(engine, q, chunks, mode) for q, chunks in zip(questions, decoded, strict=True)]
            base = lossless.setdefault(mode, found)
            kls = [kl_divergence(q.logits, logits) for q, logits in zip(questions, found, strict=True)]
            floor = [kl_divergence(q.logits, logits) for q, logits in zip(questions, base, strict=True)]
            row |= {
                f"first_token_kl_{mode}": mean(kl[0] for kl in kls),
                f"mean_kl_{mode}": mean(kl.mean() for kl in kls),
                f"excess_kl_{mode}": mean(a.mean() - b.mean() for a, b in zip(kls, floor, strict=True)),
                f"kl_to_lossless_{mode}": mean(kl_divergence(a, b).mean() for a, b in zip(base, found, strict=True)),
            }
        yield name, row


def question_of(engine: Engine, sample: Sample, collection: Collection) -> Question:
    """The first question of a sample over its documents."""
    question = sample.questions[0].question
    plan = engine.plan(question, collection.search(question, 6), max_new_tokens=ANSWER_TOKENS)
    full = engine.prefill_plan(plan, Mode.FULL, reserve=ANSWER_TOKENS)
    spans = SpanRecorder(engine.model.device)
    length = {"max_new_tokens": ANSWER_TOKENS, "stop_ids": frozenset[int]()}
    answer = tuple(decode(engine.model, full.cache, full.logits, spans=spans, **length))
    full.cache.crop(plan.num_tokens)
    chunks = tuple(chunk_of(engine.model, plan.ids(segment)) for segment in plan.context)
    return Question(plan, chunks, answer, score(engine.model, full.cache, full.logits, answer))


def chunk_of(model: LayerwiseModel, token_ids: tuple[int, ...]) -> ChunkKV:
    """A chunk prefilled alone."""
    return ChunkKV(ChunkKey.of("", token_ids), token_ids, prefill_chunk(model, torch.tensor(token_ids)))


def mode_logits(engine: Engine, question: Question, chunks: Sequence[ChunkKV], mode: Mode) -> torch.Tensor:
    """Logits (answer tokens, vocab) along full's answer on these chunk caches."""
    capacity = question.plan.num_tokens + ANSWER_TOKENS
    source = ChunkSource(engine.model, chunks, capacity)
    fused = fuse(engine.model, question.plan, source, BlendConfig().selection(mode), capacity=capacity)
    return score(engine.model, fused.cache, fused.logits, question.answer)


def mean(values: Iterator[torch.Tensor]) -> float:
    """Mean of scalar tensors."""
    return float(torch.stack(list(values)).mean())


# What is printed and kept


def report(engine: Engine, samples: Sequence[Sample], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured, with where and how."""
    return {
        "command": shlex.join(["python", "-m", "benchmarks.codecs", *sys.argv[1:]]),
        "environment": asdict(engine.environment),
        "samples": [sample.slug for sample in samples],
        "settings": {"chunk_tokens": CHUNK_TOKENS, "following_tokens": FOLLOWING, "answer_tokens": ANSWER_TOKENS},
        "variants_of": GOAL.name,
        "rows": [{**row, "is_variant": row["codec"] in VARIANTS} for row in rows],
    }


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print a Markdown table."""
    columns = [name for name in rows[1] if name != "codec"]
    print("| codec | " + " | ".join(name.replace("_", " ") for name in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for row in rows:
        cells = (f"{row[name]:.4g}" if name in row else "" for name in columns)
        print(f"| {row['codec']} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
