"""The results pane: the run on screen as question, columns and chunks; asking streams a new one into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from cacheblend.trace import Mode
from ui import asking, cards, header, words
from ui.asking import View
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.panes.question import QuestionPane
from ui.sessions import Run
from ui.settings import parse
from ui.studio import RECORDED, Studio
from ui.visitor import secret_of

WELCOME = (
    "This run was recorded earlier and is shown without a model. Pick a sample collection or upload documents, ask, "
    "and your own run takes its place."
)


def build(page: Page, asked: QuestionPane) -> None:
    """Lay the pane out on the recorded run, and wire asking."""
    first = asking.finished(page.studio.recorded) if page.studio.recorded else View()
    heading = gr.HTML(render_heading(page.studio, first), elem_id="heading")
    with gr.Row(elem_id="cards"):
        columns = [gr.HTML(render_card(page.studio, first, mode), elem_id=f"card-{mode}") for mode in Mode]
    chunks = gr.HTML(first.excerpts or "", elem_id="excerpts")
    shown = [asked.status, heading, *columns, chunks, page.run, page.session, page.header]

    def on_ask(
        request: gr.Request, session_id: str | None, run_id: str, question: str, *form: Any
    ) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.open(session_id, secret_of(request))
        previous = page.studio.run(run_id)

        def views() -> Iterator[View]:
            yield from asking.ask(page.studio, session, question or "", parse(*form))

        for view in guarded(views(), lambda status: after_failure(previous, status)):
            yield *outputs(page.studio, view), session.id, header.render(page.studio)

    trigger = [asked.ask.click, asked.question.submit]
    inputs = [page.session, page.run, asked.question, *asked.form]
    job = model_job(
        lambda *args, **options: gr.on(trigger, *args, **options),
        on_ask,
        inputs,
        shown,
        status=asked.status,
        api_name="ask",
    )
    with asked.stop_place:
        stop_button(page, [job], asked.status)

    def on_run(run_id: str) -> tuple[Any, ...]:
        run = page.studio.run(run_id)  # from here, or a point of an experiment
        return outputs(page.studio, asking.finished(run))[1:-1] if run else (gr.skip(),) * (len(columns) + 2)

    page.run.change(
        on_run, page.run, [heading, *columns, chunks], queue=False, show_progress="hidden", api_visibility="private"
    )


def after_failure(previous: Run | None, status: str) -> View:
    """Put the previous run back on screen, under what went wrong."""
    return View(status=status) if previous is None else _with_status(asking.finished(previous), status)


def outputs(studio: Studio, view: View) -> tuple[Any, ...]:
    """The pane's components in order; what a view leaves out stays as it is."""
    columns = [render_card(studio, view, mode) if view.cards else gr.skip() for mode in Mode]
    heading = gr.skip() if view.question is None else render_heading(studio, view)
    kept = [gr.skip() if part is None else part for part in (view.excerpts, view.run_id)]
    return view.status, heading, *columns, *kept


def render_heading(studio: Studio, view: View) -> str:
    """The question, what is expected of it, and where its answers come from."""
    if view.question is None:
        return '<div class="heading"><p class="quiet">No run yet: choose documents and ask.</p></div>'
    run = studio.run(view.run_id) if view.run_id else None
    is_recorded = view.run_id == RECORDED
    origin = asking.provenance(run.comparison, is_recorded=is_recorded) if run else "running now"
    expected = studio.expected(view.question)
    aside = f'<p class="expected">Expected: <b>{words.text(expected.answer)}</b></p>' if expected else ""
    welcome = f'<p class="welcome">{WELCOME}</p>' if is_recorded else ""
    badge = f'<p class="badge{" recorded" if is_recorded else ""}">{words.text(origin)}</p>'
    return f'<div class="heading">{badge}<h2>{words.text(view.question)}</h2>{aside}{welcome}</div>'


def render_card(studio: Studio, view: View, mode: Mode) -> str:
    """One column of a view; nothing for a mode that was not asked for."""
    if mode not in view.cards:
        return ""
    return cards.render(view.cards[mode], studio.expected(view.question or ""), beside=len(view.cards))


def _with_status(view: View, status: str) -> View:
    return View(status=status, question=view.question, excerpts=view.excerpts, cards=view.cards, run_id=view.run_id)
