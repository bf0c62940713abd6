"""Evaluations of a tiny random model: what a row holds, going on after a stop, caches that are used again."""

from __future__ import annotations

import gc
import json
import threading
from dataclasses import replace

import pytest

from cacheblend.cancel import Cancelled
from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.documents import Chunk, plain_tokenizer
from cacheblend.engine import Engine
from cacheblend.evaluation.datasets import Dataset
from cacheblend.evaluation.question import Passage, Question, Task
from cacheblend.evaluation.rows import CONFIG, ROWS, RowFile, Setting, settings
from cacheblend.evaluation.runner import EvaluationConfig, cut, evaluate
from cacheblend.evaluation.scores import score
from cacheblend.events import Compared
from cacheblend.fusion.extend import KVCache
from cacheblend.loading import StoreConfig
from cacheblend.retrieval import Hit
from cacheblend.trace import COMPARED, Deviation, Mode, Recipe, Selector, Trace
from tests.app.fakes import FakeEmbedder
from tests.tiny import tiny, tiny_tokenizer

SETTINGS = settings(list(COMPARED), [0.1, 0.3], [Selector.SINGLE], [Deviation.VALUE])
CONFIG_OF_ALL = EvaluationConfig(settings=SETTINGS, chunks=3, chunk_tokens=32, max_new_tokens=5)


def text(seed: int, length: int) -> str:
    return " ".join(f"w{15 + (seed * 31 + i * i * 7 + i) % 80}" for i in range(length))


def dataset(count: int, **options) -> Dataset:
    """Questions with three passages each; a question shares two of them with the one before."""
    questions = tuple(
        Question(
            id=f"q{number}",
            question=f"who lit w{20 + number} ?",
            answers=(text(number, 2), "w40"),
            passages=tuple(Passage("", text(n, 18 + n % 4)) for n in range(number, number + 3)),
            **options,
        )
        for number in range(count)
    )
    return Dataset(name="own", questions=questions)


def engine(store: StoreConfig | None = None) -> Engine:
    return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=store or StoreConfig(memory_bytes=10**7))


def embedding_engine() -> Engine:
    made = engine(StoreConfig(memory_bytes=10**8))
    made._embedder = FakeEmbedder()
    return made


def run(made: Engine, asked: Dataset, folder, config: EvaluationConfig = CONFIG_OF_ALL, **options):
    file = RowFile(folder, config.described(made, asked))
    done = list(evaluate(made, asked, config, file, **options))
    return file, done


def timeless(file: RowFile) -> dict:
    """Rows without what a clock or the state of the store decides."""
    return {key: replace(row, ttft_ms=0.0, ttft_parts_ms={}, places="") for key, row in file.rows.items()}


def test_settings_take_every_policy_and_recipe_where_they_mean_something():
    made = settings(
        [Mode.FULL, Mode.REUSE, Mode.BLEND, Mode.PRIME],
        [0.05],
        list(Selector),
        [Deviation.VALUE],
        ["hkvd", "query"],
        [Recipe.BARE, Recipe.NEUTRAL],
    )
    assert [setting.label for setting in made] == [
        "full",
        "reuse",
        "reuse neutral",
        "blend 0.05 single value",
        "blend 0.05 gradual value",
        "blend 0.05 query",
        "blend 0.05 single value neutral",
        "blend 0.05 gradual value neutral",
        "blend 0.05 query neutral",
        "prime 0.05",
    ]


def test_every_policy_and_recipe_is_measured_and_goes_on_where_it_was(tmp_path):
    of = settings(
        [Mode.FULL, Mode.UNPLACED, Mode.REUSE, Mode.BLEND, Mode.PRIME],
        [0.2],
        policies=["hkvd", "query", "late-query", "oracle"],
        recipes=list(Recipe),
    )
    config = replace(CONFIG_OF_ALL, settings=of, max_new_tokens=3, chunk_tokens=16)
    made, asked = embedding_engine(), dataset(2)
    whole, done = run(made, asked, tmp_path / "whole", config)
    assert len(whole.rows) == 2 * len(of)
    assert all(row.is_warm for row in whole.rows.values())
    assert all(one.prefilled for one in done)
    for question in ("q0", "q1"):
        assert whole.rows[question, "full"].kv_deviation == whole.rows[question, "full"].attention_deviation == 0
        assert whole.rows[question, "reuse"].kv_deviation > whole.rows[question, "blend 0.2 oracle"].kv_deviation > 0
        assert whole.rows[question, "blend 0.2 query"].ttft_parts_ms["select"] > 0
        prime, uncarried = (whole.rows[question, name] for name in ("prime 0.2", "blend 0.2 late-query neutral"))
        assert prime.recomputed_tokens == uncarried.recomputed_tokens and prime.mean_kl != uncarried.mean_kl
    lines = (tmp_path / "whole" / ROWS).read_text().splitlines(keepends=True)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / CONFIG).write_text((tmp_path / "whole" / CONFIG).read_text())
    (tmp_path / "half" / ROWS).write_text("".join(lines[:9]))
    resumed, _ = run(embedding_engine(), asked, tmp_path / "half", config)
    assert timeless(resumed) == timeless(whole)
    _, again = run(made, asked, tmp_path / "again", config)
    assert sum(one.prefilled for one in again) == 0, "the second run finds every chunk cache"


def test_settings_are_every_combination_with_full_first():
    made = settings([Mode.BLEND, Mode.FULL, Mode.FULL], [0.1, 0.3], list(Selector), [Deviation.VALUE])
    assert [setting.label for setting in made] == [
        "full",
        "blend 0.1 single value",
        "blend 0.1 gradual value",
        "blend 0.3 single value",
        "blend 0.3 gradual value",
    ]
    assert settings([Mode.BLEND], [0.1, 0.1], [Selector.SINGLE], [Deviation.KEY]) == (
        Setting(Mode.BLEND, BlendConfig(ratio=0.1, deviation="key")),
    )


def test_rows_hold_what_compare_says(tmp_path):
    made, asked = engine(), dataset(2)
    file, done = run(made, asked, tmp_path)
    assert [len(one.rows) for one in done] == [4, 4]
    assert list(file.rows) == [(f"q{i}", setting.label) for i in range(2) for setting in SETTINGS]
    encode = plain_tokenizer(made.tokenizer).encode
    for number, question in enumerate(asked.questions):
        hits = [Hit(chunk, 0.0) for chunk in cut(question, made.tokenizer, 32, 3)]
        for setting in SETTINGS[1:]:
            events = made.compare(question.question, hits, blend=setting.blend, max_new_tokens=5)
            comparison = next(event.comparison for event in events if isinstance(event, Compared))
            trace, row = comparison.trace(setting.mode), file.rows[f"q{number}", setting.label]
            scores = score(trace.answer, question.answers, encode)
            assert (row.answer, row.policy, row.mode) == (trace.answer, trace.policy, setting.mode)
            assert (row.first_token_kl, row.mean_kl) == (trace.fidelity.first_token_kl, trace.fidelity.mean_kl)
            assert (row.top1_agreement, row.f1_to_full) == (trace.fidelity.top1_agreement, trace.fidelity.f1_to_full)
            assert (row.f1, row.rouge_l, row.squad_f1) == (scores.f1, scores.rouge_l, scores.squad_f1)
            assert row.recomputed_tokens == trace.recomputed_tokens
            assert row.context_tokens == comparison.context_tokens and row.prompt_tokens == len(comparison.tokens)
            assert row.is_warm and row.places == "memory"
            assert 0 < sum(row.ttft_parts_ms.values()) <= row.ttft_ms


def test_passages_are_cut_and_counted_as_chunks():
    tokenizer = tiny_tokenizer()
    asked = Question(id="q", question="?", answers=(), passages=(Passage("w20", text(1, 40)), Passage("", text(2, 10))))
    chunks = cut(asked, tokenizer, 32, 9)
    assert [(chunk.document, chunk.index) for chunk in chunks] == [("w20", 0), ("w20", 1), ("passage 2", 0)]
    assert all(len(chunk.token_ids) <= 32 for chunk in chunks) and sum(len(c.token_ids) for c in chunks) == 52
    assert chunks[0].text.startswith("w20: ") and len(chunks[0].token_ids) > 20, "a title is no chunk by itself"
    assert cut(asked, tokenizer, 32, 1) == chunks[:1]
    whole = cut(asked, tokenizer, 512, 9)
    assert [len(chunk.token_ids) for chunk in whole] == [41, 10]
    assert whole[0].text.startswith("w20\n\n") and whole[0].text.endswith("\n\n")


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 6])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, kept):
    asked = dataset(3)
    whole, _ = run(engine(), asked, tmp_path / "whole")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / CONFIG).write_text((tmp_path / "whole" / CONFIG).read_text())
    lines = (tmp_path / "whole" / ROWS).read_text().splitlines(keepends=True)
    torn = lines[kept][: len(lines[kept]) // 2]
    (tmp_path / "again" / ROWS).write_text("".join(lines[:kept]) + torn)
    resumed, done = run(engine(), asked, tmp_path / "again")
    assert resumed.was_torn and not whole.was_torn
    assert timeless(resumed) == timeless(whole) and list(resumed.rows) == list(whole.rows)
    assert sum(len(one.rows) for one in done) == 12 - kept, "what was there is not measured again"
    assert (tmp_path / "again" / ROWS).read_text().splitlines()[:kept] == [line.rstrip() for line in lines[:kept]]
    assert timeless(RowFile(tmp_path / "again", json.loads((tmp_path / "again" / CONFIG).read_text()))) == timeless(
        whole
    )


def test_a_cancelled_run_leaves_rows_that_it_goes_on_from(tmp_path, monkeypatch):
    asked, cancel = dataset(3), threading.Event()
    whole, _ = run(engine(), asked, tmp_path / "whole")
    append = RowFile.append

    def stop_after_six(file, row):
        append(file, row)
        if len(file.rows) == 6:
            cancel.set()

    monkeypatch.setattr(RowFile, "append", stop_after_six)
    with pytest.raises(Cancelled):
        run(engine(), asked, tmp_path / "again", cancel=cancel)
    monkeypatch.undo()
    resumed, done = run(engine(), asked, tmp_path / "again")
    assert [len(one.rows) for one in done] == [0, 2, 4]
    assert timeless(resumed) == timeless(whole)


def test_a_folder_belongs_to_one_configuration(tmp_path):
    made, asked = engine(), dataset(2)
    run(made, asked, tmp_path)
    for other, said in [(replace(CONFIG_OF_ALL, chunks=2), "another chunks:"), (CONFIG_OF_ALL, "another dataset:")]:
        with pytest.raises(ValueError, match=said):
            run(made, dataset(1) if said.endswith("dataset:") else asked, tmp_path, other)
    (tmp_path / ROWS).write_text('{"question_id": "q0"}\n')
    with pytest.raises(ValueError, match="line 1 is damaged"):
        run(made, asked, tmp_path)
    (tmp_path / CONFIG).write_text("{")
    with pytest.raises(ValueError, match=r"config.json is damaged"):
        run(made, asked, tmp_path)
    (tmp_path / CONFIG).unlink()
    with pytest.raises(ValueError, match=r"rows but no config.json"):
        run(made, asked, tmp_path)


def test_rows_of_a_policy_that_has_changed_since_are_not_gone_on_with(tmp_path, monkeypatch):
    config = replace(CONFIG_OF_ALL, settings=settings([Mode.FULL, Mode.PRIME], [0.2]))
    made, asked = embedding_engine(), dataset(1)
    run(made, asked, tmp_path, config)
    monkeypatch.setattr("cacheblend.config.PRIME", BlendConfig(policy="query"))
    with pytest.raises(ValueError, match="another settings:"):
        run(made, asked, tmp_path, config)


def test_a_second_run_prefills_nothing(tmp_path):
    asked, store = dataset(4), StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv")
    first = engine(store)
    whole, done = run(first, asked, tmp_path / "first")
    # the prefix, and 3 + 1 + 1 + 1 passages: each question shares two with the one before, whose places differ
    texts = {passage.text for question in asked.questions for passage in question.passages}
    assert sum(one.prefilled for one in done) == len(texts) + 1
    assert done[0].prefilled > done[1].prefilled
    first.store.close()
    second = engine(store)
    again, done = run(second, asked, tmp_path / "second")
    assert [one.prefilled for one in done] == [0, 0, 0, 0]
    assert timeless(again) == timeless(whole)
    assert all(row.is_warm for row in again.rows.values())
    assert "disk" in again.rows["q0", "reuse"].places
    assert sum(tier.misses for tier in second.store.stats if tier.place == "disk") == 0
    second.store.close()


def test_nothing_but_rows_is_kept_and_the_store_keeps_its_bound(tmp_path):
    made = engine(StoreConfig(memory_bytes=150_000))
    config = replace(CONFIG_OF_ALL, settings=settings([Mode.FULL, Mode.REUSE], [], [], []), max_new_tokens=2)
    counted = []
    asked = dataset(30)
    file = RowFile(tmp_path, config.described(made, asked))
    for number, _ in enumerate(evaluate(made, asked, config, file)):
        assert made.store.stats[0].nbytes <= 150_000
        if number in (2, 29):
            gc.collect()
            counted.append(sum(type(thing) in (KVCache, Trace, Chunk) for thing in gc.get_objects()))
    assert len(file.rows) == 60 and 0 < counted[1] <= counted[0]
    assert made.store.stats[0].evictions > 0


def test_a_prompt_that_does_not_fit_is_skipped_and_said(tmp_path):
    long = Question(id="long", question="who ?", answers=(), passages=(Passage("", text(1, 600)),))
    asked = Dataset(name="own", questions=(long, *dataset(1).questions))
    config = replace(CONFIG_OF_ALL, chunk_tokens=600)
    file, done = run(engine(), asked, tmp_path, config)
    assert done[0].skipped.startswith("Question long is skipped: The prompt has 6") and not done[0].rows
    assert len(file.rows) == 4 and not done[1].skipped


def test_without_gold_answers_or_without_full_there_are_no_such_numbers(tmp_path):
    asked = Dataset(name="own", questions=(replace(dataset(1).questions[0], answers=()),))
    config = replace(CONFIG_OF_ALL, settings=settings([Mode.REUSE], [], [], []))
    file, _ = run(engine(), asked, tmp_path, config)
    row = file.rows["q0", "reuse"]
    assert row.f1 is row.rouge_l is row.exact_match is row.mean_kl is row.top1_agreement is None


def test_summaries_have_an_instruction_of_their_own(tmp_path):
    config = replace(CONFIG_OF_ALL, settings=(Setting(Mode.FULL),))
    made = engine()
    prefix = made.prompts.prefix
    answer, _ = run(made, dataset(1), tmp_path / "a", config)
    summary, _ = run(made, dataset(1, task=Task.SUMMARY), tmp_path / "b", config)
    lengths = [file.rows["q0", "full"].prompt_tokens for file in (answer, summary)]
    assert lengths[0] != lengths[1] and made.prompts.prefix == prefix
    assert (Task.ANSWER.max_new_tokens, Task.SUMMARY.max_new_tokens) == (32, 128)


class _ByFirstWord:
    """An embedder that knows one thing of a text: whether w20 is in it."""

    def encode(self, texts):
        import numpy as np

        return np.asarray([[1.0, 0.0] if "w20" in text else [0.0, 1.0] for text in texts], dtype=np.float32)


def test_passages_are_retrieved_where_a_folder_has_documents(tmp_path):
    made = engine()
    for name, content in (("far.txt", "w50 w51 w52"), ("near.txt", "w20 w60 w61")):
        (tmp_path / name).write_text(content)
    collection = Collection(made.tokenizer, _ByFirstWord(), chunk_tokens=32)
    collection.add([tmp_path / "far.txt", tmp_path / "near.txt"])
    asked = Dataset(name="own", questions=(replace(dataset(1).questions[0], passages=()),))
    config = replace(CONFIG_OF_ALL, chunks=1)
    retrieved, _ = run(made, asked, tmp_path / "out", config, collection=collection)
    near = replace(asked.questions[0], passages=(Passage("", "w20 w60 w61"),))
    given, _ = run(made, Dataset(name="own", questions=(near,)), tmp_path / "given", config)
    assert timeless(retrieved) == timeless(given)


@pytest.mark.parametrize("bad", [{"settings": ()}, {"chunks": 0}, {"chunk_tokens": 3}, {"max_new_tokens": 0}])
def test_a_configuration_that_measures_nothing_is_refused(bad):
    with pytest.raises(ValueError, match="at least"):
        replace(CONFIG_OF_ALL, **bad)
