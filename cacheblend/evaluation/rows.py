"""The rows of an evaluation, and the file they are appended to. A folder belongs to one configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, Self

from cacheblend.config import HKVD_NAME, BlendConfig
from cacheblend.evaluation.scores import Scores
from cacheblend.trace import Deviation, Mode, Recipe, Selector, Trace

DEFAULT_BLEND = BlendConfig()
ROWS, CONFIG = "rows.jsonl", "config.json"


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to answer: a mode, and the settings of blend, of which reuse goes by the recipe alone."""

    mode: Mode
    blend: BlendConfig = DEFAULT_BLEND

    @property
    def label(self) -> str:
        """Name the setting for people, and in rows: “blend 0.15 single value”, “blend 0.05 query neutral”."""
        blend, words = self.blend, [str(self.mode)]
        if self.mode in (Mode.BLEND, Mode.PRIME):
            words.append(f"{blend.share:.4g}")
        if self.mode is Mode.BLEND:
            words += [blend.selector, blend.deviation] if blend.policy == HKVD_NAME else [blend.policy]
        if self.mode in (Mode.BLEND, Mode.REUSE) and blend.recipe is not Recipe.BARE:
            words.append(blend.recipe)
        return " ".join(words)


def settings(
    modes: Sequence[Mode],
    ratios: Sequence[float],
    selectors: Sequence[Selector] = (DEFAULT_BLEND.selector,),
    deviations: Sequence[Deviation] = (DEFAULT_BLEND.deviation,),
    policies: Sequence[str] = (DEFAULT_BLEND.policy,),
    recipes: Sequence[Recipe] = (DEFAULT_BLEND.recipe,),
) -> tuple[Setting, ...]:
    """Every mode once, blend in every combination; full first, as the others are held against it.

    Selectors and deviations are HKVD's; reuse is taken with every recipe, PrimeBlend with every ratio.
    """
    plain = [(DEFAULT_BLEND.selector, DEFAULT_BLEND.deviation)]
    kinds = {HKVD_NAME: list(product(selectors, deviations))}
    blends = [
        BlendConfig(ratio=ratio, policy=policy, selector=selector, deviation=deviation, recipe=recipe)
        for recipe, policy, ratio in product(recipes, policies, ratios)
        for selector, deviation in kinds.get(policy, plain)
    ]
    of = {
        Mode.REUSE: [BlendConfig(recipe=recipe) for recipe in recipes],
        Mode.BLEND: blends,
        Mode.PRIME: [BlendConfig(ratio=ratio) for ratio in ratios],
    }
    made = [
        Setting(mode, blend)
        for mode in sorted(set(modes), key=list(Mode).index)
        for blend in of.get(mode, [DEFAULT_BLEND])
    ]
    return tuple(dict.fromkeys(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question in one setting. Scores are None without a gold answer, distances None where full did not run."""

    question_id: str
    setting: str
    mode: str
    ratio: float  # asked for
    policy: str
    answer: str
    f1: float | None
    rouge_l: float | None
    squad_f1: float | None
    exact_match: float | None
    first_token_kl: float | None
    mean_kl: float | None
    top1_agreement: float | None
    f1_to_full: float | None
    kv_deviation: float | None
    attention_deviation: float | None
    ttft_ms: float
    ttft_parts_ms: dict[str, float]
    context_tokens: int
    prompt_tokens: int
    recomputed_tokens: int
    recomputed_share: float
    is_warm: bool
    places: str  # where the chunk caches were, fastest first

    @classmethod
    def of(
        cls, question_id: str, setting: Setting, trace: Trace, scores: Scores | None, lengths: tuple[int, int]
    ) -> Self:
        """Take from a trace what is kept of it. lengths: tokens of the context, and of the prompt."""
        scored = asdict(scores) if scores else dict.fromkeys(field.name for field in fields(Scores))
        distance = trace.fidelity
        return cls(
            question_id=question_id,
            setting=setting.label,
            mode=trace.mode,
            ratio=trace.ratio,
            policy=trace.policy,
            answer=trace.answer,
            **scored,
            first_token_kl=distance.first_token_kl if distance else None,
            mean_kl=distance.mean_kl if distance else None,
            top1_agreement=distance.top1_agreement if distance else None,
            f1_to_full=distance.f1_to_full if distance else None,
            kv_deviation=distance.kv_deviation if distance else None,
            attention_deviation=distance.attention_deviation if distance else None,
            ttft_ms=trace.ttft_ms,
            ttft_parts_ms={str(lane): ms for lane, ms in trace.ttft_parts.items()},
            context_tokens=lengths[0],
            prompt_tokens=lengths[1],
            recomputed_tokens=trace.recomputed_tokens,
            recomputed_share=trace.recomputed_share,
            is_warm=trace.is_warm,
            places=", ".join(trace.loading.places) if trace.loading else "",
        )


class RowFile:
    """Rows on disk, one JSON object a line, appended and flushed one by one.

    was_torn: whether a last line was cut short, by a run that was killed while it wrote; it has been dropped.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        """Open a folder for one configuration; ValueError if it holds rows of another, or damaged ones."""
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / ROWS).exists() and not (folder / CONFIG).exists():
            raise ValueError(f"{folder} has rows but no {CONFIG}: choose another folder.")
        claim(folder / CONFIG, config, "an evaluation")
        self.path = folder / ROWS
        self.was_torn = _drop_torn(self.path)
        self.rows = {(row.question_id, row.setting): row for row in _read(self.path)}

    def append(self, row: Row) -> None:
        """Write one row down."""
        line = json.dumps(asdict(row), ensure_ascii=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self.rows[row.question_id, row.setting] = row


def claim(path: Path, config: dict[str, Any], what: str) -> None:
    """Write a configuration down, or ValueError if another one is there. what: it is of, “an evaluation”."""
    config = json.loads(json.dumps(config))
    if not path.exists():
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, path)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names = sorted(found.keys() | config.keys())
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: choose another folder, or delete this one.") from error
    other = [name for name in names if found.get(name) != config.get(name)]
    if other:
        raise ValueError(
            f"{path.parent} holds {what} with another {', '.join(other)}: choose another folder or the same settings."
        )


def _drop_torn(path: Path) -> bool:
    """Cut off a last line without its end; tell whether there was one."""
    if not path.exists():
        return False
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return whole < len(data)


def _read(path: Path) -> list[Row]:
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(Row(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number} is damaged: delete that line, and it is measured again."
            ) from error
    return rows
