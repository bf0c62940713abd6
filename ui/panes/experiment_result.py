"""The result pane of Experiments: the figure, what it says and on what, its files, and its points to look inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from cacheblend.evaluation.results import to_csv, to_jsonl
from ui import exports, notices, opening, performed
from ui.experiment_view import render_heading, render_notes, render_points, title
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.performed import Performed
from ui.sessions import Session
from visualizations import theme
from visualizations.experiments import FIGURES
from visualizations.report import page as report_page

FIGURE_ID = "experiment-figure"
# Gradio's plot tells nobody what was clicked; Plotly does, to whoever asks the element that it drew in. A new figure
# may be drawn in the same element with its listeners gone, or in another one.
CLICKS = f"""
const host = element.closest('[role=tabpanel]') || document.body;
let heard = null;
const listen = () => {{
  const plot = document.querySelector('#{FIGURE_ID} .js-plotly-plot');
  if (!plot || !plot._ev || plot._ev === heard) return;
  heard = plot._ev;
  plot.on('plotly_click', (event) => {{
    const data = event.points[0].customdata;
    if (Array.isArray(data) && data[3]) trigger('pick', {{ value: data[3] }});
  }});
}};
new MutationObserver(listen).observe(host, {{ childList: true, subtree: true }});
listen();
"""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPane:
    """drawn: the id of the result on screen; outputs: what `show` gives values for, in order."""

    drawn: gr.State
    outputs: list[Component]

    @property
    def nothing(self) -> list[Any]:
        """Leaves everything as it is."""
        return [gr.skip()] * len(self.outputs)

    def show(self, session: Session | None, performed_id: str | None) -> list[Any]:
        """Values that put a result on screen, and list what else the visitor can look at."""
        of = performed.find(session, performed_id)
        listed = [(title(each), each.id) for each in performed.listed(session)]
        which = gr.update(choices=listed, value=of.id if of else None, visible=len(listed) > 1)
        points, questions = opening.choices(of), opening.questions(of)
        finding, notes, figure = drawn_of(of) if of else ("", [], None)
        return [
            of.id if of else None,
            which,
            render_heading(of, finding, notes),
            gr.update(value=figure, visible=of is not None),
            render_notes(of),
            render_points(of),
            *_files(of),
            gr.update(visible=False),
            gr.update(visible=bool(points)),
            gr.update(choices=points, value=points[0][1] if points else None),
            gr.update(choices=questions, value=questions[0][1] if questions else None),
        ]


def build(page: Page) -> ResultPane:
    """Lay the pane out and wire what happens in it."""
    drawn = gr.State(None)
    which = gr.Dropdown([], label="Results", visible=False, elem_id="experiment-which")
    heading = gr.HTML(elem_id="experiment-heading")
    figure = gr.Plot(show_label=False, elem_id=FIGURE_ID, visible=False)
    clicks = gr.HTML("", js_on_load=CLICKS, elem_id="experiment-clicks")
    with gr.Column(visible=False, elem_id="experiment-open") as group:
        gr.HTML("<p>Click a point of the figure, or choose one here, to run it on one question and look inside.</p>")
        with gr.Row(elem_classes="toolbar"):
            points = gr.Dropdown([], label="Point (settings · mean KL)", elem_id="experiment-point")
            question = gr.Dropdown([], label="Question", elem_id="experiment-question")
            look = gr.Button("Open in Inspect", size="sm", elem_id="open-point")
        status = gr.HTML(elem_id="open-status", elem_classes="status")
        stop_place = gr.Row(elem_classes="stop-row")
    notes = gr.HTML(elem_id="experiment-notes")
    with gr.Accordion("Points as a table", open=False, elem_id="experiment-points"):
        table = gr.HTML()
    with gr.Row(elem_classes="downloads"):
        csv = gr.DownloadButton("Download points (CSV)", size="sm", elem_id="download-csv")
        jsonl = gr.DownloadButton("Download points (JSONL)", size="sm", elem_id="download-jsonl")
        prepare = gr.Button("Prepare a report of all results (HTML)", size="sm", elem_id="prepare-report")
        report = gr.DownloadButton("Download report (HTML)", size="sm", visible=False, elem_id="download-report")
    report_status = gr.HTML(elem_id="report-status", elem_classes="status")
    outputs = [drawn, which, heading, figure, notes, table, csv, jsonl, report, group, points, question]
    pane = ResultPane(drawn=drawn, outputs=outputs)

    def on_which(session_id: str | None, performed_id: str | None) -> list[Any]:
        return pane.show(page.studio.sessions.find(session_id), performed_id)

    def on_prepare(session_id: str | None) -> tuple[str, Any]:
        path = report_of(page.studio.sessions.find(session_id))
        return notices.done("The report is ready."), gr.update(value=str(path), visible=True)

    which.input(on_which, [page.session, which], outputs, **QUIET)
    prepare.click(on_prepare, page.session, [report_status, report], show_progress="hidden", api_visibility="private")
    _wire_opening(page, pane, clicks, look, [points, question], status, stop_place)
    return pane


def _wire_opening(
    page: Page,
    pane: ResultPane,
    clicks: gr.HTML,
    look: gr.Button,
    form: list[Component],
    status: gr.HTML,
    stop_place: gr.Row,
) -> None:
    """A point, clicked or chosen, is run on the chosen question and put before Inspect."""
    points, question = form

    def steps(session_id: str | None, drawn: str | None, label: str, number: int | None) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.find(session_id)
        opened = opening.open_point(page.studio, session, drawn, str(label), number or 0)
        for step in guarded(opened, opening.Step):
            is_there = step.run_id is not None
            tabs = gr.Tabs(selected="inspect") if is_there else gr.skip()
            yield step.status, step.run_id if is_there else gr.skip(), tabs

    def on_look(session_id: str | None, drawn: str | None, label: str, number: int | None) -> Iterator[tuple[Any, ...]]:
        for shown in steps(session_id, drawn, label, number):
            yield *shown, gr.skip()

    def on_click(
        session_id: str | None, drawn: str | None, number: int | None, event: gr.EventData
    ) -> Iterator[tuple[Any, ...]]:
        label = str(event.value)
        known = {known for _, known in opening.choices(_found(page, session_id, drawn))}
        for shown in steps(session_id, drawn, label, number):
            yield *shown, label if label in known else gr.skip()

    outputs = [status, page.run, page.tabs, points]
    jobs = [
        model_job(look.click, on_look, [page.session, pane.drawn, points, question], outputs, status=status),
        model_job(clicks.pick, on_click, [page.session, pane.drawn, question], outputs, status=status),
    ]
    with stop_place:
        stop_button(page, jobs, status)


def _found(page: Page, session_id: str | None, performed_id: str | None) -> Performed | None:
    return performed.find(page.studio.sessions.find(session_id), performed_id)


def drawn_of(of: Performed) -> tuple[str, list[str], Any]:
    """What the figure of a result says, its notes, and the figure; one that says so where nobody drew it."""
    draw = FIGURES.get(of.result.experiment)
    if draw is None:
        name = of.result.experiment
        return theme.untitled(theme.empty_figure(name, height=320, why="There is no figure for this experiment."))
    return theme.untitled(draw(of.result))


def report_of(session: Session | None) -> Path:
    """Write the report of everything that a visitor has run; of the recorded result if they ran nothing."""
    own = session.experiments if session and session.experiments else performed.listed(None)
    return exports.write(report_page([each.result for each in own]), "cacheblend-report.html")


def _files(of: Performed | None) -> tuple[str | None, str | None]:
    """The points as files in the page's private folder."""
    if of is None:
        return None, None
    name = of.result.experiment
    return str(exports.write(to_csv(of.result), f"{name}.csv")), str(
        exports.write(to_jsonl(of.result), f"{name}.jsonl")
    )
