"""One record of a dataset → a Question. Which format a record has is told by its fields.

Formats: the authors' JSON (question, answers, ctxs) and their files of one question (query, chunk_num, "0", "1" …);
LongBench (input, context, answers); MuSiQue (paragraphs) and 2WikiMultihopQA (context) as they are on the hub;
MultiNews (document, summary); and a user's own, see `_own`. Every ValueError says in words what is wrong with a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cacheblend.documents.text import clean
from cacheblend.evaluation.question import Passage, Question, Task

Record = Mapping[str, Any]
Parts = tuple[str, Sequence[str], Sequence[Passage], Task]  # question, answers, passages, task

SUMMARISE = "Summarize the passages."
LONGBENCH_SUMMARIES = frozenset({"gov_report", "multi_news", "qmsum", "samsum", "vcsum"})
_LONGBENCH_PASSAGE = re.compile(r"^Passage \d+:[ \t]*\n", re.MULTILINE)
_ASKED = re.compile(r".*Question:\s*(?P<question>.+?)\s*(Answer:)?\s*", re.DOTALL)  # in the authors' own prompt
_PASSAGE_COLUMN = re.compile(r"passage[ _]?(\d+)", re.IGNORECASE)
_ARTICLE_BORDER = "|||||"  # between the articles of one MultiNews document


def question_of(record: object, fallback_id: str, *, has_documents: bool = False, task: Task | None = None) -> Question:
    """Read one record; raise ValueError, in words that go on after “line 3: ”, if it cannot be used.

    fallback_id: for records that carry no id; has_documents: passages will be retrieved, so none are needed; task:
    overrules what the format says.
    """
    if not isinstance(record, Mapping):
        raise ValueError("it is not an object with fields")
    parse = next((parse for fields, parse in FORMATS if fields <= record.keys()), None)
    if parse is None:
        raise ValueError("it has no field “question”, nor the fields of another format that is known")
    question, answers, passages, own_task = parse(record)
    kept = tuple(Passage(clean(p.title), clean(p.text)) for p in passages)
    kept = tuple(passage for passage in kept if passage.text)
    if not kept and not has_documents:
        raise ValueError("it has no passages")
    return Question(
        id=clean(str(_first(record, "id", "_id") or "")) or fallback_id,
        question=clean(question),
        answers=tuple(answer for answer in map(clean, answers) if answer),
        passages=kept,
        task=task or own_task,
    )


def _authors(record: Record) -> Parts:
    """musique_s.json, wikimqa_s.json, samsum.json of the authors' repository."""
    return _text(record, "question"), _answers(record), _passages(record["ctxs"]), _task(record)


def _authors_single(record: Record) -> Parts:
    """One of the authors' numbered files: the query stands in their own prompt, and there is no gold answer."""
    query, count = _text(record, "query"), str(record["chunk_num"])
    if not count.isdecimal():
        raise ValueError(f"its chunk_num is “{count[:20]}”, not a number")
    asked = _ASKED.fullmatch(query)
    passages = [Passage("", _text(record, str(i))) for i in range(min(int(count), len(record)))]
    return asked["question"] if asked else query, (), passages, Task.ANSWER


def _longbench(record: Record) -> Parts:
    """A row of LongBench; a context without its marks is one passage, which is cut by tokens later."""
    context = _text(record, "context")
    marks = list(_LONGBENCH_PASSAGE.finditer(context))
    ends = [mark.start() for mark in marks[1:]] + [len(context)]
    texts = [context[mark.end() : end] for mark, end in zip(marks, ends, strict=True)] if marks else [context]
    task = Task.SUMMARY if str(record.get("dataset")).removesuffix("_e") in LONGBENCH_SUMMARIES else Task.ANSWER
    question = _text(record, "input") or (SUMMARISE if task is Task.SUMMARY else "")
    return question, _answers(record), [Passage("", text) for text in texts], task


def _musique(record: Record) -> Parts:
    paragraphs = [Passage(_text(p, "title"), _text(p, "paragraph_text")) for p in _objects(record["paragraphs"])]
    answers = [*_answers(record), *_strings(record.get("answer_aliases") or [])]
    return _text(record, "question"), answers, paragraphs, Task.ANSWER


def _two_wiki(record: Record) -> Parts:
    """Passages as pairs of a title and sentences, or as two columns, or as JSON of either; a text is one passage."""
    context = _unpacked(record["context"])
    if isinstance(context, str):
        return _text(record, "question"), _answers(record), [Passage("", context)], Task.ANSWER
    if isinstance(context, Mapping):
        titles, texts = _list(context.get("title")), _list(_first(context, "sentences", "content"))
        if len(titles) != len(texts):
            raise ValueError(f"its context has {len(titles)} titles and {len(texts)} texts")
        context = list(zip(titles, texts, strict=True))
    pairs = [_list(pair) for pair in _list(context)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("its context is not made of titles and sentences")
    passages = [Passage(str(title), " ".join(_strings(sentences))) for title, sentences in pairs]
    return _text(record, "question"), _answers(record), passages, Task.ANSWER


def _multi_news(record: Record) -> Parts:
    articles = [Passage("", text) for text in _text(record, "document").split(_ARTICLE_BORDER)]
    return SUMMARISE, [_text(record, "summary")], articles, Task.SUMMARY


def _own(record: Record) -> Parts:
    """A user's own: question; answer or answers; passages, or columns passage_1, title_1, passage_2 …

    passages: a list of texts or of {title, text}. In CSV a list is a cell of JSON. Empty cells do not count. A
    field task may say “summary”.
    """
    if record.get("passages"):
        return _text(record, "question"), _answers(record), _passages(record["passages"]), _task(record)
    columns = {int(match[1]): name for name in record if (match := _PASSAGE_COLUMN.fullmatch(name))}
    passages = [
        Passage(str(_first(record, f"title_{number}", f"title{number}") or ""), _text(record, columns[number]))
        for number in sorted(columns)
        if record[columns[number]]
    ]
    return _text(record, "question"), _answers(record), passages, _task(record)


# The first whose fields are all there; a new format is one entry.
FORMATS: tuple[tuple[frozenset[str], Callable[[Record], Parts]], ...] = (
    (frozenset({"query", "chunk_num"}), _authors_single),
    (frozenset({"input", "context", "answers"}), _longbench),
    (frozenset({"question", "ctxs"}), _authors),
    (frozenset({"question", "paragraphs"}), _musique),
    (frozenset({"question", "context"}), _two_wiki),
    (frozenset({"document", "summary"}), _multi_news),
    (frozenset({"question"}), _own),
)


def _task(record: Record) -> Task:
    return Task.SUMMARY if record.get("task") == Task.SUMMARY else Task.ANSWER


def _first(record: Record, *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _text(record: Record, name: str) -> str:
    """A field that must be text; a number is taken as it is written."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"its field “{name}” is missing or not text")
    return str(value)


def _unpacked(value: Any) -> Any:
    """What a text that is a JSON list or object stands for; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError("something else stands where a list is needed")
    return list(value)


def _objects(value: Any) -> list[Record]:
    objects = _list(_unpacked(value))
    if not all(isinstance(item, Mapping) for item in objects):
        raise ValueError("its passages are not objects with fields")
    return objects


def _strings(value: Any) -> list[str]:
    """Texts, whether one, several, or (wikimqa_s.json) several lists of which the first text counts."""
    value = _unpacked(value)
    items = value if isinstance(value, list | tuple) else [value]
    firsts = [item[0] if isinstance(item, list | tuple) and item else item for item in items]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in firsts):
        raise ValueError("a text was expected, and something else stands there")
    return [str(item) for item in firsts]


def _answers(record: Record) -> list[str]:
    found = _first(record, "answers", "answer")
    return [] if found is None else _strings(found)


def _passages(value: Any) -> list[Passage]:
    passages = []
    for item in _list(_unpacked(value)):
        if isinstance(item, Mapping):
            passages.append(Passage(str(item.get("title") or ""), _text(item, "text")))
        elif isinstance(item, str):
            passages.append(Passage("", item))
        else:
            raise ValueError("a passage is neither text nor an object with “text”")
    return passages
