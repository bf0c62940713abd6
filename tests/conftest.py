"""Shared fixtures: a tiny model of each family, and a prompt made of segments."""

from __future__ import annotations

import faulthandler
import os
import sys
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

from cacheblend.fusion.extend import prefill_chunk
from cacheblend.fusion.source import ChunkSource
from cacheblend.kv import ChunkKey, ChunkKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from tests.tiny import FAMILIES, random_ids, tiny

ENDS_S = 120


def pytest_unconfigure() -> None:
    """A process that a thread keeps after the last test fails, and says where that thread is."""
    faulthandler.dump_traceback_later(ENDS_S, exit=True, file=sys.__stderr__)


@dataclass
class Case:
    """A model, a prompt in segments, and the caches of its context."""

    model: LayerwiseModel
    prefix: list[int]
    chunks: list[list[int]]
    suffix: list[int]

    @property
    def plan(self) -> PromptPlan:
        return PromptPlan.of(self.prefix, self.chunks, self.suffix)

    def caches(self) -> list[ChunkKV]:
        segments = [self.plan.ids(s) for s in self.plan.context]
        return [
            ChunkKV(ChunkKey.of("tiny", ids), ids, prefill_chunk(self.model, torch.tensor(ids))) for ids in segments
        ]

    def source(self) -> ChunkSource:
        return ChunkSource(self.model, self.caches(), self.plan.num_tokens)


def make_case(family: str, seed: int = 0, lengths: tuple[int, ...] = (6, 19, 11, 23, 7)) -> Case:
    """prefix · chunks · suffix of these lengths."""
    prefix, *chunks, suffix = (random_ids(n, seed * 100 + i) for i, n in enumerate(lengths))
    return Case(LayerwiseModel(tiny(family)), prefix, chunks, suffix)


@pytest.fixture(params=FAMILIES)
def case(request) -> Case:
    """One case for each family."""
    return make_case(request.param)


@pytest.fixture
def llama() -> Case:
    """One case, Llama."""
    return make_case("llama")
