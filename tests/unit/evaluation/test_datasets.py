"""Every format, what is malformed, and where questions come from. Fixtures are our own, written out here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cacheblend.evaluation import datasets, question
from cacheblend.evaluation import hub as hub_sets
from cacheblend.evaluation.datasets import read_dataset
from cacheblend.evaluation.question import Passage, Task

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
LIGHT = [Passage("Light", "Anna lit it."), Passage("", "Ben did not.")]
CTXS = [{"title": "Light", "text": "Anna lit it."}, {"title": "", "text": "Ben did not."}]


def write(path: Path, *records: object) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def only(source: str, **options):
    (found,) = read_dataset(source, **options).questions
    return found


FORMATS = {
    "authors": ({"question": "Who lit it?", "answers": ["Anna"], "ctxs": CTXS}, LIGHT),
    "answers as lists": ({"question": "Who lit it?", "answers": [["Anna", "not this"]], "ctxs": CTXS}, LIGHT),
    "longbench": (
        {
            "_id": "1",
            "input": "Who lit it?",
            "answers": ["Anna"],
            "dataset": "musique",
            "context": "Passage 1:\nLight\nAnna lit it.\n\nPassage 2:\nBen did not.\n",
        },
        [Passage("", "Light\nAnna lit it."), Passage("", "Ben did not.")],
    ),
    "longbench without marks": (
        {"input": "Who lit it?", "answers": ["Anna"], "context": "See Passage 7: Anna."},
        [Passage("", "See Passage 7: Anna.")],
    ),
    "musique": (
        {
            "question": "Who lit it?",
            "answer": "Anna",
            "answer_aliases": [],
            "paragraphs": [
                {"title": "Light", "paragraph_text": "Anna lit it."},
                {"title": "", "paragraph_text": "Ben did not."},
            ],
        },
        LIGHT,
    ),
    "2wiki columns": (
        {
            "question": "Who lit it?",
            "answer": "Anna",
            "context": {"title": ["Light", ""], "sentences": [["Anna", "lit it."], ["Ben did not."]]},
        },
        LIGHT,
    ),
    "2wiki pairs as JSON": (
        {"question": "Who lit it?", "answer": "Anna", "context": '[["Light", ["Anna lit it."]], ["", "Ben did not."]]'},
        LIGHT,
    ),
    "a text as context": (
        {"question": "Who lit it?", "answer": "Anna", "context": "Anna lit it."},
        [Passage("", "Anna lit it.")],
    ),
    "own": ({"question": "Who lit it?", "answer": "Anna", "passages": [CTXS[0], "Ben did not."]}, LIGHT),
    "own columns": (
        {"question": "Who lit it?", "answers": ["Anna"], "passage_10": "Ben did not.", "passage_2": "Anna lit it.",
         "title_2": "Light"},
        LIGHT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_the_same(tmp_path, name):
    record, passages = FORMATS[name]
    found = only(write(tmp_path / "set.jsonl", record))
    assert (found.question, found.answers, list(found.passages)) == ("Who lit it?", ("Anna",), passages)
    assert (found.id, found.task) == ("1", Task.ANSWER)


def test_a_file_of_one_question_has_no_gold_answer(tmp_path):
    query = "\n\nAnswer within 5 words. Question: who lit it?\nAnswer:"
    path = tmp_path / "7.json"
    path.write_text(json.dumps({"0": "\n\nAnna lit it.", "1": "Ben.", "query": query, "chunk_num": "2"}))
    found = only(str(path))
    assert (found.id, found.question, found.answers) == ("7", "who lit it?", ())
    assert found.passages == (Passage("", "Anna lit it."), Passage("", "Ben."))


def test_summaries_are_told_by_their_format_or_by_the_user(tmp_path):
    news = {"document": "One article. ||||| Another one.", "summary": "Two articles."}
    found = only(write(tmp_path / "a.jsonl", news))
    assert (found.task, found.answers) == (Task.SUMMARY, ("Two articles.",))
    assert found.passages == (Passage("", "One article."), Passage("", "Another one."))
    long = {"input": "", "context": "A text.", "answers": ["Short."], "dataset": "multi_news_e"}
    assert only(write(tmp_path / "b.jsonl", long)).task is Task.SUMMARY
    authors = FORMATS["authors"][0]
    assert only(write(tmp_path / "c.jsonl", authors), task=Task.SUMMARY).task is Task.SUMMARY
    assert only(write(tmp_path / "d.jsonl", {**authors, "task": "summary"})).task is Task.SUMMARY


def test_a_table_has_columns_or_cells_of_json(tmp_path):
    path = tmp_path / "set.csv"
    path.write_text(
        "\ufeffid,question,answer,title_1,passage_1,passage_2\n"
        'a,Who lit it?,Anna,Light,"Anna\nlit it.",\n'
        "\n"
        'b,"Who, then?","[""Ben"", ""Benjamin""]",,x,y\n',
        encoding="utf-8",
    )
    first, second = read_dataset(str(path)).questions
    assert (first.id, first.answers, first.passages) == ("a", ("Anna",), (Passage("Light", "Anna\nlit it."),))
    assert (second.question, second.answers, len(second.passages)) == ("Who, then?", ("Ben", "Benjamin"), 2)
    tabs = tmp_path / "set.tsv"
    tabs.write_text('question\tanswer\tpassages\nWho?\t42\t["one", {"title": "t", "text": "two"}]\n')
    assert only(str(tabs)).passages == (Passage("", "one"), Passage("t", "two"))


MALFORMED = {
    "not json": ("{", "it is not JSON"),
    "not an object": ("[1]", "not an object"),
    "unknown fields": ('{"prompt": "?"}', "no field “question”"),
    "an empty question": ('{"question": " ", "passages": ["x"]}', "its question is empty"),
    "no passages": ('{"question": "?", "passages": []}', "it has no passages"),
    "empty passages": ('{"question": "?", "passages": ["", "\\u0007"]}', "it has no passages"),
    "passages that are text": ('{"question": "?", "passages": "x"}', "where a list is needed"),
    "passages that are numbers": ('{"question": "?", "passages": [1]}', "neither text nor an object"),
    "a passage without text": ('{"question": "?", "ctxs": [{"title": "x"}]}', "“text” is missing"),
    "a question that is a list": ('{"question": ["?"], "passages": ["x"]}', "“question” is missing or not text"),
    "an answer that is an object": ('{"question": "?", "answer": {}, "passages": ["x"]}', "a text was expected"),
    "chunks that are missing": ('{"query": "?", "chunk_num": 2, "0": "x"}', "“1” is missing"),
    "a chunk_num in words": ('{"query": "?", "chunk_num": "two", "0": "x"}', "“two”, not a number"),
    "unequal columns": ('{"question": "?", "context": {"title": ["a"], "sentences": []}}', "1 titles and 0 texts"),
    "nesting": ('{"question": "?", "passages": ' + "[" * 100_000 + "}", "nested too deeply"),
    "the same id": ('{"id": "1", "question": "?", "passages": ["x"]}', "“1” was used before"),
    "other bytes": ('{"question": "\udcff", "passages": ["x"]}', "not UTF-8"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_is_named_by_its_line_and_skipped(tmp_path, name):
    line, said = MALFORMED[name]
    good = json.dumps(FORMATS["authors"][0])
    path = tmp_path / "set.jsonl"
    path.write_bytes(f"{good}\n\n{line}\n{good}\n".encode(errors="surrogateescape"))
    read = read_dataset(str(path))
    assert [question.id for question in read.questions] == ["1", "4"]
    (problem,) = read.problems
    assert problem.startswith("line 3: ") and said in problem and problem.endswith(".") and "\n" not in problem


def test_malformed_rows_of_a_table_are_named_too(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "MAX_CHARACTERS", 50)
    path = tmp_path / "set.csv"
    path.write_text(f'question,passages\nA?,"[""x""]"\nB?,x,y,z\n"C\n?","{"c" * 60}"\nD?,\nE?,"[""x""]"\n')
    read = read_dataset(str(path))
    assert [question.question for question in read.questions] == ["A?", "E?"]
    starts = ("line 3: it has more cells", "line 4: it is no row of a table", "line 6: it has no passages")
    assert all(problem.startswith(start) for problem, start in zip(read.problems, starts, strict=True))


def test_rows_of_a_json_file_are_named_by_their_number(tmp_path):
    path = tmp_path / "set.json"
    path.write_text(json.dumps([FORMATS["authors"][0], 5, FORMATS["own"][0]]))
    read = read_dataset(str(path))
    assert [q.id for q in read.questions] == ["1", "3"]
    assert read.problems == ("row 2: it is not an object with fields.",)


def test_sizes_are_limited(tmp_path, monkeypatch):
    record = FORMATS["authors"][0]
    monkeypatch.setattr(question, "MAX_CHARACTERS", 40)
    with pytest.raises(ValueError, match="more than 40 characters"):
        read_dataset(write(tmp_path / "a.jsonl", {**record, "question": "?" * 41}))
    monkeypatch.setattr(question, "MAX_PASSAGES", 1)
    with pytest.raises(ValueError, match="it has 2 passages; the limit is 1"):
        read_dataset(write(tmp_path / "b.jsonl", record))
    monkeypatch.setattr(datasets, "MAX_FILE_BYTES", 30)
    with pytest.raises(ValueError, match=r"c.json is larger than .*: write it as JSONL"):
        read_dataset(write(tmp_path / "c.json", record))
    monkeypatch.setattr(datasets, "MAX_ROW_BYTES", 30)
    with pytest.raises(ValueError, match="line 1 is larger than"):
        read_dataset(write(tmp_path / "d.jsonl", record))
    monkeypatch.setattr(datasets, "MAX_PROBLEMS", 2)
    with pytest.raises(ValueError, match=r"more than 2 rows are malformed, the first is line 1: it is not an object"):
        read_dataset(write(tmp_path / "e.jsonl", 1, 2, 3, 4))


def test_the_limit_counts_questions_that_can_be_used(tmp_path):
    source = write(tmp_path / "set.jsonl", 0, *({**FORMATS["own"][0], "id": i} for i in range(1, 9)), 0)
    read = read_dataset(source, limit=3)
    assert [q.id for q in read.questions] == ["1", "2", "3"] and len(read.problems) == 1
    with pytest.raises(ValueError, match="at least 1 question"):
        read_dataset(source, limit=0)


def test_a_fingerprint_tells_what_is_asked(tmp_path):
    record = FORMATS["own"][0]
    one, same = (read_dataset(write(tmp_path / name, record)).fingerprint for name in ("a.jsonl", "b.jsonl"))
    other = read_dataset(write(tmp_path / "c.jsonl", {**record, "answer": "Ben"})).fingerprint
    assert one == same != other


def test_a_folder_holds_documents_and_questions_about_them(tmp_path):
    (tmp_path / "light.txt").write_text("Anna lit it.")
    (tmp_path / "notes.xyz").write_text("not a document")
    write(tmp_path / "questions.jsonl", {"question": "Who lit it?", "answer": "Anna"})
    read = read_dataset(str(tmp_path))
    assert [path.name for path in read.documents] == ["light.txt"]
    assert read.questions[0].passages == ()
    (tmp_path / "light.txt").unlink()
    with pytest.raises(ValueError, match="at least one document"):
        read_dataset(str(tmp_path))


def test_a_folder_of_dataset_files_is_read_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2):
        record = {"0": "x", "query": "Question: who?\nAnswer:", "chunk_num": 1}
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    write(tmp_path / "more.jsonl", FORMATS["own"][0], 7)
    read = read_dataset(str(tmp_path))
    assert [q.id for q in read.questions] == ["2", "10", "more-1"]
    assert read.problems == ("more.jsonl, line 2: it is not an object with fields.",)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.jsonl", None, "no file or folder, and no hub set"),
        ("set.xml", "<x/>", "set.xml is none of .json, .jsonl"),
        ("set.json", "{", "set.json cannot be read: it is not JSON"),
        ("set.json", "[" * 100_000, "set.json cannot be read: it is nested too deeply"),
        ("set.jsonl", "", "no question that can be used"),
        ("set.csv", b"question,passages\n\xff,x\n", "set.csv is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=said):
        read_dataset(str(tmp_path / name))


# Sets of the hub, read from a stand-in: nothing here asks the network


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the package: `rows` is what it streams, `asked` what it was asked for."""
    state = SimpleNamespace(rows=[], asked=[], taken=0)

    def load_dataset(path, **options):
        state.asked.append((path, options))
        for row in state.rows:
            state.taken += 1
            yield row

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return state


def test_a_set_of_the_hub_is_streamed_as_far_as_it_is_needed(hub):
    hub.rows = [{**FORMATS["musique"][0], "id": str(i)} for i in range(100)]
    assert [q.id for q in read_dataset("musique", limit=3).questions] == ["0", "1", "2"]
    assert hub.taken == 3
    assert hub.asked == [("dgslibisey/MuSiQue", {"split": "validation", "revision": None, "streaming": True})]
    read_dataset("hub:someone/else:train", limit=1)
    assert hub.asked[1] == ("someone/else", {"split": "train", "revision": None, "streaming": True})


def test_dialogues_stand_behind_those_that_are_solved(hub):
    hub.rows = [{"id": i, "dialogue": f"A: {i}", "summary": f"{i} said"} for i in range(12)]
    read = read_dataset("samsum")
    assert len(read.questions) == 2 and all(q.task is Task.SUMMARY and len(q.passages) == 10 for q in read.questions)
    last = read.questions[1]
    assert last.question == "Dialogue:\nA: 11\nSummary:" and last.answers == ("11 said",)
    assert last.passages[-1] == Passage("", "Dialogue:\nA: 10\nSummary: 10 said")
    assert all("11 said" not in passage.text for passage in last.passages)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install -r requirements-hub\.txt"):
        read_dataset("multi_news")


def test_local_files_ask_nobody(tmp_path, monkeypatch):
    def refuse(name):
        raise AssertionError(f"{name} was imported for a local file")

    monkeypatch.setattr(hub_sets, "import_module", refuse)
    assert only(write(tmp_path / "set.jsonl", FORMATS["own"][0]))


@pytest.mark.skipif(not SHARED.exists(), reason="the shared passages are not here")
def test_real_passages_are_read():
    musique = read_dataset(str(SHARED / "musique_dev.json"))
    assert len(musique.questions) == 75 and not musique.problems
    assert all(len(q.passages) == 10 and q.answers for q in musique.questions)
    single = only(str(SHARED / "2wiki_like_1.json"))
    assert single.question.startswith("where did the performer") and single.question.endswith("?")
    assert len(single.passages) == 6 and not single.answers
