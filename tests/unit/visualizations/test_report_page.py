"""The report: one file with everything in it, whatever is in the results."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest

from cacheblend.evaluation import results
from cacheblend.evaluation.points import Result
from tests.synthetic import HOSTILE
from tests.unit.evaluation.results import hostile, result
from visualizations.__main__ import main
from visualizations.experiments import FIGURES
from visualizations.report import page
from visualizations.tables import MAX_ROWS, table


class Reader(HTMLParser):
    """What a browser would make elements and links of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in {"a", "link", "img", "script", "iframe"}:
            self.links.append(dict(attrs))

    def handle_data(self, data):
        self.text += data


def drawn(made: Result) -> go.Figure:
    figure = go.Figure(layout={"title": {"text": "Drawn"}})
    for point in made.points:
        figure.add_scatter(x=[point.x], y=[point.y], name="blend")
    return figure


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    for name in list(FIGURES):
        monkeypatch.delitem(FIGURES, name)
    monkeypatch.setitem(FIGURES, "fig16", drawn)


def test_every_result_is_there_with_its_figure_facts_and_files():
    html = page([result("later"), result("fig16")])
    reader = Reader(html)
    assert html.count("Plotly.newPlot(") >= 1 and '"figure-0"' in html
    assert html.index('id="result-0"') < html.index('id="figure-0"') < html.index('id="result-1"')
    assert "There is no figure for this experiment" in reader.text
    for fact in ("tiny", "cpu, float32, 1 thread, torch 0", "100 to 240 tokens", "A question does not fit."):
        assert fact in reader.text
    files = {link["download"]: link["href"] for link in reader.links if link.get("download")}
    assert sorted(files) == ["fig16.csv", "fig16.jsonl", "later.csv", "later.jsonl"]
    assert base64.b64decode(files["fig16.csv"].split(",")[1]).decode() == results.to_csv(result("fig16"))
    assert files["fig16.jsonl"].startswith("data:application/jsonl;")


def test_nothing_is_fetched_and_the_script_is_there_once():
    html = page([result("fig16"), result("fig16")])
    assert html.count("* plotly.js v") == 1
    reader = Reader(html)
    assert not {"link", "iframe", "img"} & set(reader.tags)
    targets = [link.get("href") or link.get("src") or "#" for link in reader.links]
    assert all(target.startswith(("#", "data:")) for target in targets)
    assert "default-src 'none'" in html and '"showSendToCloud": false' in html.replace('":false', '": false')


def test_texts_are_text():
    assert "<img" in HOSTILE or "<script" in HOSTILE
    plain, nasty = Reader(page([result("later")])), Reader(page([hostile("later")]))
    assert [tag for tag in plain.tags if tag not in {"th", "td"}] == [t for t in nasty.tags if t not in {"th", "td"}]
    assert HOSTILE in nasty.text
    assert HOSTILE in Reader(page([], problems=[HOSTILE])).text
    assert HOSTILE in Reader(table([HOSTILE], [[HOSTILE]])).text


def test_a_long_table_is_cut_and_says_so():
    html = table(["x"], [[float(i)] for i in range(MAX_ROWS + 7)])
    assert html.count("<tr>") == MAX_ROWS + 1 and "7 more rows" in html


def test_a_folder_becomes_a_page(tmp_path, capsys):
    results.save(tmp_path, result("fig16"))
    results.save(tmp_path, result("later"))
    path = tmp_path / "later.json"
    path.write_text(path.read_text()[:300])
    (tmp_path / "experiments.json").write_text("{}")
    means = {"f1": {"mean": 0.25, "low": 0.1, "high": 0.5, "n": 3}}
    settings = [
        {"setting": "full", "questions": 3, "means": means, "speedup": 1.0},
        {"setting": HOSTILE, "questions": 3, "means": {}, "speedup": None},
    ]
    (tmp_path / "summary.json").write_text(json.dumps({"settings": settings}))
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    assert main([str(tmp_path)]) == 0
    assert "report.html · " in capsys.readouterr().out
    reader = Reader((tmp_path / "report.html").read_text())
    assert "later.json cannot be read" in reader.text and str(tmp_path) not in reader.text
    assert "0.25 [0.1, 0.5]" in reader.text and HOSTILE in reader.text
    assert {"rows.csv", "summary.json", "fig16.csv"} <= {link.get("download") for link in reader.links}
    assert len(re.findall("<section", (tmp_path / "report.html").read_text())) == 2


def test_what_is_no_evaluation_is_said_on_the_page(tmp_path):
    results.save(tmp_path, result())
    (tmp_path / "summary.json").write_text('{"settings": [{}]}')
    assert main([str(tmp_path)]) == 0
    assert "not the summary of an evaluation" in (tmp_path / "report.html").read_text()


def test_a_folder_without_results_is_one_sentence(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "has no results: run `python -m cacheblend experiment" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
