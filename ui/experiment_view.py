"""Experiments as HTML: what can be measured, and what was. Functions of facts; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from cacheblend.evaluation.catalogue import CATALOGUE
from cacheblend.evaluation.points import About, Result
from cacheblend.evaluation.results import COLUMNS
from ui import words
from ui.performed import RECORDED, Performed
from visualizations import tables

EMPTY = '<p class="quiet empty">Nothing has been measured yet: choose an experiment and run it.</p>'
WELCOME = "This result was recorded earlier and is drawn without a model. Run an experiment, and yours takes its place."
MATRIX = '<p class="quiet">The cells of a matrix are too many for a table: they are in the files.</p>'


def render_catalogue(chosen: str) -> str:
    """A button for each experiment, in two groups, and what the chosen one asks."""
    paper = [about for about in CATALOGUE if is_papers(about)]
    ours = [about for about in CATALOGUE if not is_papers(about)]
    groups = "".join(
        f'<div class="group" role="group" aria-label="{name}"><p>{name}</p>{_buttons(of, chosen)}</div>'
        for name, of in (("The paper’s figures", paper), ("Ours", ours))
        if of
    )
    told = "".join(_told(about) for about in CATALOGUE if about.name == chosen)
    return f'<div class="catalogue">{groups}{told}</div>'


def is_papers(about: About) -> bool:
    """Whether an experiment is one of the paper's figures."""
    return about.name.startswith("fig")


def _buttons(of: list[About], chosen: str) -> str:
    return "".join(
        f'<button type="button" data-pick="{words.text(about.name)}" title="{words.text(about.asks)}"'
        f' aria-pressed="{str(about.name == chosen).lower()}">{_number(about)}{words.text(about.title)}</button>'
        for about in of
    )


def _number(about: About) -> str:
    return f"<b>{int(about.name[3:])}</b> " if is_papers(about) and about.name[3:].isdecimal() else ""


def _told(about: About) -> str:
    slow = f'<p class="slow">Takes long: {words.text(about.slow)}</p>' if about.slow else ""
    how = f'<details><summary>How it is measured</summary><p class="quiet">{words.text(about.measures)}</p></details>'
    return f'<div class="told"><p class="asks">{words.text(about.asks)}</p>{slow}{how}</div>'


def title(performed: Performed) -> str:
    """When it was run, and the experiment: how a list of results names it."""
    at = performed.result.environment.recorded_at
    when = "recorded" if performed.id == RECORDED else f"{at[11:19]} UTC"
    return f"{when} · {_about(performed.result).title}"  # what is cut on a phone is the title's end


def render_heading(performed: Performed | None, finding: str = "", notes: Sequence[str] = ()) -> str:
    """What is on screen, what it answers, where it comes from; what its figure says, and how to read it."""
    if performed is None:
        return EMPTY
    result, about = performed.result, _about(performed.result)
    env, is_recorded = result.environment, performed.id == RECORDED
    whose = "recorded earlier" if is_recorded else "your documents"
    origin = " · ".join([whose, env.model, env.device, env.dtype, env.recorded_at[:10]])
    badge = f'<p class="badge{" recorded" if is_recorded else ""}">{words.text(origin)}</p>'
    welcome = f'<p class="welcome">{WELCOME}</p>' if is_recorded else ""
    return (
        f'<div class="heading">{badge}<h2>{words.text(about.title)}</h2>'
        f'<p class="asks">{words.text(about.asks)}</p>{welcome}'
        f'<p class="finding">{words.text(finding)}</p><p class="quiet">{words.text(" · ".join(notes))}</p></div>'
    )


def render_notes(performed: Performed | None) -> str:
    """How it was measured, on how much, and what was left out."""
    if performed is None:
        return ""
    result = performed.result
    least, most = result.context_tokens
    span = words.count(most, "token") if least == most else f"{words.count(least)} to {words.count(most, 'token')}"
    left_out = "".join(f"<li>{words.text(sentence)}</li>" for sentence in result.left_out)
    aside = f'<div class="left-out"><p><b>Left out</b></p><ul>{left_out}</ul></div>' if left_out else ""
    return (
        f'<div class="measured-how"><p>{words.count(result.questions, "question")}, context of {span}.</p>'
        f'<p class="quiet">{words.text(_about(result).measures)}</p>{aside}</div>'
    )


def render_points(performed: Performed | None) -> str:
    """The points as a table."""
    if performed is None:
        return ""
    result = performed.result
    if any(point.z is not None for point in result.points):
        return MATRIX
    used = [name for name in COLUMNS if any(getattr(point, name) not in (None, "") for point in result.points)]
    rows = [[getattr(point, name) for name in used] for point in result.points]
    return f'<div class="points">{tables.table(used, rows)}</div>'


def _about(result: Result) -> About:
    known = next((about for about in CATALOGUE if about.name == result.experiment), None)
    return known or About(name=result.experiment, title=result.experiment, asks="", measures="")
