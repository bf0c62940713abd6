"""Results → one HTML page with everything in it: figures, tables, files, and the script that draws them.

Nothing is fetched when it is read, and its own policy forbids that. Knows results; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from html import escape
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
from plotly.offline import get_plotlyjs

from cacheblend.evaluation.catalogue import ABOUT
from cacheblend.evaluation.points import About, Result
from cacheblend.evaluation.results import COLUMNS, to_csv, to_jsonl
from visualizations import tables, theme
from visualizations.experiments import FIGURES

TITLE = "CacheBlend Studio: what was measured"
CSS_FILE = Path(__file__).with_name("report.css")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,  # a figure is the reader's own
    "responsive": True,
    "toImageButtonOptions": {"format": "svg"},
}
PRINT_WIDTH = 660  # what A4 and Letter hold between their margins
# Plotly draws for the width of the window, which is not that of the sheet.
PRINTING = f"""
const figures = () => [...document.querySelectorAll('.js-plotly-plot')];
addEventListener('beforeprint', () => figures().forEach((f) => Plotly.relayout(f, {{ width: {PRINT_WIDTH} }})));
addEventListener('afterprint', () => figures().forEach((f) => Plotly.relayout(f, {{ width: null, autosize: true }})));
"""


def page(results: Sequence[Result], extra: Sequence[str] = (), problems: Sequence[str] = ()) -> str:
    """The whole page. extra: further sections as HTML; problems: what could not be shown, a sentence each."""
    ordered = sorted(results, key=lambda result: _place(result.experiment))
    sections = [_section(i, result) for i, result in enumerate(ordered)]
    items = "".join(
        f'<li><a href="#result-{i}">{escape(_about(result.experiment).title)}</a></li>'
        for i, result in enumerate(ordered)
    )
    told = "".join(f"<p>{escape(problem)}</p>" for problem in problems)
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{TITLE}</title><style>{CSS_FILE.read_text(encoding='utf-8')}{theme.css()}</style>",
            f"<script>{get_plotlyjs()}</script></head><body><main><header><h1>{TITLE}</h1>",
            f'<p class="quiet">{_counted(ordered)} Grey, dotted curves are the paper’s, read off its drawings.</p>',
            f"<nav><ol>{items}</ol></nav>",
            f'<div class="left-out">{told}</div></header>' if told else "</header>",
            *sections,
            *extra,
            f"</main><script>{PRINTING}</script></body></html>",
        ]
    )


def section(title: str, content: str) -> str:
    """A further section. content: HTML."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _about(name: str) -> About:
    return ABOUT.get(name) or About(name=name, title=name, asks="", measures="")


def _place(name: str) -> tuple[int, str]:
    names = list(ABOUT)
    return (names.index(name) if name in ABOUT else len(names), name)


def _counted(results: Sequence[Result]) -> str:
    if not results:
        return "No experiment has been run yet."
    return f"{len(results)} experiment{'s' if len(results) > 1 else ''}, everything measured unless it says otherwise."


def _section(number: int, result: Result) -> str:
    about = _about(result.experiment)
    left_out = "".join(f"<p>{escape(sentence)}</p>" for sentence in result.left_out)
    aside = f'<div class="left-out"><p><b>Left out</b></p>{left_out}</div>' if left_out else ""
    return (
        f'<section id="result-{number}"><p class="name">{escape(about.name)}</p><h2>{escape(about.title)}</h2>'
        f'<p class="asks">{escape(about.asks)}</p><div class="figure">{_figure(number, result)}</div>'
        f'{_facts(result)}<p class="measures">{escape(about.measures)}</p>{aside}{_files(result)}'
        f"{_rows(result)}</section>"
    )


def _figure(number: int, result: Result) -> str:
    draw = FIGURES.get(result.experiment)
    if draw is None:
        return '<p class="without quiet">There is no figure for this experiment; its points are below.</p>'
    figure: go.Figure = draw(result)
    html: str = plotly.io.to_html(
        figure, config=CONFIG, include_plotlyjs=False, full_html=False, div_id=f"figure-{number}"
    )
    return html


def _facts(result: Result) -> str:
    env, (least, most) = result.environment, result.context_tokens
    tokens = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    threads = f"{env.threads} thread{'' if env.threads == 1 else 's'}"
    facts = {
        "model": env.model,
        "on": f"{env.device}, {env.dtype}, {threads}, torch {env.torch_version}",
        "questions": f"{result.questions:,}",
        "context": f"{tokens} tokens",
        "measured": env.recorded_at,
    }
    return "<dl>" + "".join(f"<div><dt>{k}</dt><dd>{escape(str(v))}</dd></div>" for k, v in facts.items()) + "</dl>"


def _files(result: Result) -> str:
    name = result.experiment
    links = tables.link(f"{name}.csv", "text/csv", to_csv(result))
    links += tables.link(f"{name}.jsonl", "application/jsonl", to_jsonl(result))
    return f'<p class="downloads">{links}</p>'


def _rows(result: Result) -> str:
    used = [
        i for i, name in enumerate(COLUMNS) if any(getattr(point, name) not in (None, "") for point in result.points)
    ]
    rows = [[astuple(point)[i] for i in used] for point in result.points]
    counted = f"{len(rows):,} point{'' if len(rows) == 1 else 's'}"
    return f"<details><summary>{counted}</summary>{tables.table([COLUMNS[i] for i in used], rows)}</details>"
