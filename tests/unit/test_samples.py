from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cacheblend.documents import read_document
from cacheblend.retrieval import load_embedder
from cacheblend.samples import SAMPLES_FOLDER, Sample, SampleQuestion, SamplesError, is_right, load_samples

SAMPLES = load_samples()
QUESTIONS = [(sample, question) for sample in SAMPLES for question in sample.questions]


def bakery(*accepted: str) -> SampleQuestion:
    accepted = accepted or ("port ember",)
    return SampleQuestion(
        question="Where is the bakery?", answer=accepted[0], accepted=accepted, documents=("a.md", "b.md")
    )


@pytest.mark.parametrize(
    "answer",
    [
        "Port Ember",
        "port ember.",
        "The bakery is in PORT  EMBER, near the quay.",
        ": Port-Ember",
        "…\n\nPort Ember",
        '"Port Ember"\nQuestion: and then?',
        "The answer is:\n\nPort Ember",
        "The answer is: 1. The bakery in Port Ember",
        "1. Port Ember\n2. Amberford",
        "Port Ember. Not Amberford.",
        "It is in Port Ember, not in Amberford.",
    ],
)
def test_an_answer_that_names_it_is_right(answer: str) -> None:
    assert is_right(answer, bakery())


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n",
        "Amberford",
        "Port Embers",
        "Port of Ember",
        "Ember Port",
        "In Amberford. It is not in Port Ember.",
        "Amberford\nPort Ember",
        "1. Amberford\n2. Port Ember",
        "Port Ember is not mentioned in the passages.",
        "It isn't in Port Ember.",
        "In Amberford, not in Port Ember.",
        "Not in Port Ember, but in Amberford.",
    ],
)
def test_any_other_answer_is_wrong(answer: str) -> None:
    assert not is_right(answer, bakery())


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("14", True),
        ("It has 14 rooms", True),
        ("14.5", False),
        ("114", False),
        ("1,4", False),
        ("at 4.14 metres", False),
    ],
)
def test_a_number_counts_whole(answer: str, right: bool) -> None:
    assert is_right(answer, bakery("14")) is right


@pytest.mark.parametrize("answer", ["8600 crowns", "8,600 crowns.", "It cost 8,600."])
def test_thousands_are_read_with_and_without_comma(answer: str) -> None:
    assert is_right(answer, bakery("8,600"))


def test_any_accepted_string_will_do() -> None:
    assert is_right("Fourteen of them", bakery("14", "fourteen"))


def test_a_decimal_point_does_not_end_the_sentence() -> None:
    assert is_right("It lies 2.5 metres down in Port Ember", bakery())


@pytest.mark.parametrize(
    "change",
    [
        {"question": " "},
        {"answer": ""},
        {"accepted": ()},
        {"accepted": ("Port Ember",)},
        {"accepted": ("...",)},
        {"accepted": ("amberford",)},
        {"documents": ("a.md", "a.md")},
    ],
)
def test_a_question_that_cannot_be_judged_is_refused(change: dict[str, object]) -> None:
    fields = {"question": "Where?", "answer": "Port Ember", "accepted": ("port ember",), "documents": ("a.md", "b.md")}
    with pytest.raises(ValueError, match=r"question|accepted|documents|answer"):
        SampleQuestion(**{**fields, **change})


def test_there_are_at_least_four_collections() -> None:
    assert len(SAMPLES) >= 4
    assert len({sample.slug for sample in SAMPLES}) == len({sample.title for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.slug)
def test_a_collection_has_what_it_promises(sample: Sample) -> None:
    assert 8 <= len(sample.paths) <= 10
    assert len(sample.questions) >= 6
    assert len({question.question for question in sample.questions}) == len(sample.questions)
    assert {path.suffix for path in sample.paths} == {".md", ".txt", ".html"}
    assert sample.title
    assert "\n" not in sample.description


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.slug)
def test_its_documents_are_read_as_any_upload_and_are_short(sample: Sample) -> None:
    for path in sample.paths:
        document = read_document(path)
        assert 60 <= len(document.text.split()) <= 220, path.name
        assert not document.warnings, path.name


@pytest.mark.parametrize(("sample", "question"), QUESTIONS, ids=lambda value: getattr(value, "question", ""))
def test_the_answer_stands_in_one_of_its_two_documents(sample: Sample, question: SampleQuestion) -> None:
    texts = [read_document(path).text.lower() for path in sample.paths if path.name in question.documents]
    assert any(accepted in text for accepted in question.accepted for text in texts)


def test_both_documents_are_among_the_six_that_are_retrieved() -> None:
    embedder = load_embedder()
    for sample in SAMPLES:
        documents = embedder.encode([read_document(path).text for path in sample.paths])
        for question in sample.questions:
            scores = documents @ embedder.encode([question.question])[0]
            nearest = {sample.paths[i].name for i in np.argsort(-scores)[:6]}
            assert set(question.documents) <= nearest, question.question


def test_what_was_measured_leaves_no_question_out_and_is_judged_as_now() -> None:
    rows = json.loads((SAMPLES_FOLDER / "measured.json").read_text())["rows"]
    assert [(row["sample"], row["question"]) for row in rows] == [(s.slug, q.question) for s, q in QUESTIONS]
    for row, (_, question) in zip(rows, QUESTIONS, strict=True):
        for mode in row["modes"].values():
            assert mode["is_right"] == is_right(mode["answer"], question), question.question


def test_the_first_question_shown_is_one_that_reuse_loses_and_blend_keeps() -> None:
    modes = json.loads((SAMPLES_FOLDER / "measured.json").read_text())["rows"][0]["modes"]
    assert {mode: run["is_right"] for mode, run in modes.items()} == {"full": True, "reuse": False, "blend": True}


def test_collections_come_in_the_order_of_the_list(tmp_path: Path) -> None:
    write_collection(tmp_path / "b")
    write_collection(tmp_path / "a")
    (tmp_path / "order.json").write_text('["b", "a"]')
    assert [sample.slug for sample in load_samples(tmp_path)] == ["b", "a"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match=r"missing .*nowhere.*restore assets/samples"):
        load_samples(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("order", "collection", "message"),
    [
        ("[]", None, "must list the folders"),
        ("{", None, "not valid JSON"),
        ('["a"]', None, "missing"),
        ('["a"]', {"title": "A"}, "cannot be used: 'description'"),
        ('["a"]', {"documents": ["a.md", "c.md"]}, "not there: c.md"),
        ('["a"]', {"documents": ["a.md"]}, "cannot be used"),
    ],
)
def test_a_damaged_collection_is_named(
    tmp_path: Path, order: str, collection: dict[str, object] | None, message: str
) -> None:
    (tmp_path / "order.json").write_text(order)
    if collection is not None:
        write_collection(tmp_path / "a", collection)
    with pytest.raises(SamplesError, match=message):
        load_samples(tmp_path)


def write_collection(folder: Path, change: dict[str, object] | None = None) -> None:
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text("Port Ember")
    question = {"question": "Where?", "answer": "Port Ember", "accepted": ["port ember"], "documents": ["a.md", "b.md"]}
    raw: dict[str, object] = {"title": "A", "description": "B", "questions": [question]}
    if change and "documents" in change:
        raw["questions"] = [{**question, **change}]
    elif change:
        raw = change
    (folder / "collection.json").write_text(json.dumps(raw))
