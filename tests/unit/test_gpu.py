"""On an accelerator: the same laws, and spans that are read from the device's own clock. `make test-gpu`."""

from __future__ import annotations

import copy

import pytest
import torch

from cacheblend.engine import Engine
from tests.tiny import random_ids, tiny, tiny_tokenizer

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def engines() -> tuple[Engine, Engine]:
    """The same tiny model on the CPU and on the accelerator."""
    here = Engine(tiny("llama"), tiny_tokenizer(), name="tiny")
    there = Engine(copy.deepcopy(tiny("llama")).to("cuda"), tiny_tokenizer(), name="tiny")
    return here, there


@pytest.mark.parametrize(
    "options",
    [{"mode": "full"}, {"mode": "reuse"}, {"ratio": 0.2}, {"ratio": 0.2, "selector": "gradual"}, {"ratio": 1.0}],
    ids=str,
)
def test_every_mode_computes_what_the_cpu_computes(engines, options):
    parts = {"prefix": random_ids(5, 1), "chunks": [random_ids(70, 2), random_ids(60, 3)], "suffix": random_ids(6, 4)}
    here, there = (engine.prefill(**parts, **options) for engine in engines)
    assert here.kept_per_layer == there.kept_per_layer
    torch.testing.assert_close(there.logits.cpu(), here.logits, atol=1e-3, rtol=1e-3)


def test_spans_are_in_order(engines):
    made = engines[1].prefill(chunks=[random_ids(70, 2)], suffix=random_ids(6, 4))
    ends = [span.end_ms for span in made.spans.spans()]
    assert ends == sorted(ends) and ends[0] > 0
