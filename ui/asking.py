"""One question, from the form to an answer in each mode: a stream of what Compare shows. Knows nothing of Gradio."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cacheblend.cancel import Cancelled
from cacheblend.events import Compared, Event, Finished, FirstToken, Started, TextDelta
from cacheblend.retrieval import Hit
from cacheblend.trace import Comparison, Mode
from ui import cards, excerpts, notices
from ui.background import stream
from ui.cards import Card, Phase
from ui.guard import STOPPED
from ui.ownership import note_prompt
from ui.preparing import prepared, recipes_of
from ui.sessions import Run, Session, new_id
from ui.settings import MAX_QUESTION, Settings
from ui.studio import Studio
from ui.turns import undisturbed

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig

SETTLE_S = 0.3  # a browser on this machine finishes drawing before a mode's clock starts


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the results pane shows; None leaves a part as it is, and so do no cards."""

    status: str = notices.IDLE
    question: str | None = None
    excerpts: str | None = None
    cards: Mapping[Mode, Card] = field(default_factory=dict)
    run_id: str | None = None


def ask(studio: Studio, session: Session, question: str, settings: Settings) -> Iterator[View]:
    """Retrieve, run the modes one after the other, and keep the run; ValueError says what the visitor can do."""
    question = checked(question)
    if session.collection is None or not session.collection.documents:
        raise ValueError("There are no documents yet: upload some, or pick a sample collection.")
    with session.job() as cancel:
        engine = yield from stream(
            lambda say: studio.engine_of(session, say), lambda said: View(status=notices.progress(said))
        )
        hits = session.collection.search(question, settings.top_k, settings.ordering, settings.seed)
        blend = settings.blend
        recipes, chunks = recipes_of(settings.modes, blend), [hit.chunk for hit in hits]
        yield from prepared(engine, session, chunks, recipes, cancel, lambda said: View(status=said))
        if Mode.PREFIX in settings.modes:
            note_prompt(engine, session, question, hits, settings.max_new_tokens)
        events = engine.compare(
            question,
            hits,
            modes=settings.modes,
            blend=blend,
            max_new_tokens=settings.max_new_tokens,
            cancel=cancel,
        )
        comparison = yield from follow(undisturbed(events, studio.turn), waiting(question, hits, settings.modes, blend))
        if comparison is not None:
            run = Run(
                id=new_id(),
                comparison=comparison,
                hits=hits,
                blend=blend,
                max_new_tokens=settings.max_new_tokens,
            )
            session.keep(run)
            yield finished(run)


def waiting(question: str, hits: Sequence[Hit], modes: Sequence[Mode], blend: BlendConfig) -> View:
    """Return what there is to see before any mode has begun."""
    return View(
        status=notices.progress("Starting"),
        question=question,
        excerpts=excerpts.render(excerpts_of_hits(hits)),
        cards={mode: Card(mode=mode, policy=blend.describe(mode)) for mode in modes},
    )


def follow(events: Iterator[Event], view: View) -> Generator[View, None, Comparison | None]:
    """Turn the engine's events into views and return the comparison; a stop leaves what was done on screen."""
    yield view
    try:
        for event in events:
            if isinstance(event, Compared):
                return event.comparison
            card, sentence = advance(view.cards[event.mode], event)
            view = replace(view, cards={**view.cards, event.mode: card}, status=notices.progress(sentence))
            yield view
            if isinstance(event, Started):
                time.sleep(SETTLE_S)
    except Cancelled:
        yield replace(view, status=STOPPED, cards={mode: stopped(card) for mode, card in view.cards.items()})
    return None


def stopped(card: Card) -> Card:
    """Return a column as it stays after a stop."""
    return card if card.phase is Phase.DONE else replace(card, phase=Phase.STOPPED)


def advance(card: Card, event: Event) -> tuple[Card, str]:
    """Return a column after an event of its mode, and what is going on."""
    title = card.title
    match event:
        case Started():
            return replace(card, phase=Phase.RUNNING), f"{title}: computing the first token"
        case FirstToken():
            return replace(card, phase=Phase.STREAMING, ttft_ms=event.ttft_ms), f"{title}: answering"
        case TextDelta():
            return replace(card, answer=event.text), f"{title}: answering"
        case Finished():
            return cards.with_trace(card, event.trace), f"{title}: done; measuring how far the answers are from full"
    raise TypeError(f"not an event of a mode: {event!r}")


def finished(run: Run) -> View:
    """Return everything there is to see of a run."""
    comparison = run.comparison
    return View(
        status=notices.IDLE,
        question=comparison.question,
        excerpts=excerpts.render(excerpts.excerpts_of(comparison)),
        cards=cards.cards_of(comparison),
        run_id=run.id,
    )


def provenance(comparison: Comparison, *, is_recorded: bool) -> str:
    """Where and when a comparison was made: recorded run · model · device · dtype · date."""
    env = comparison.environment
    kind = "recorded run" if is_recorded else "your run"
    return " · ".join([kind, env.model, env.device, env.dtype, env.recorded_at[:10]])


def excerpts_of_hits(hits: Sequence[Hit]) -> list[excerpts.Excerpt]:
    """Return the chunks that retrieval found, before any model has seen them."""
    return [
        excerpts.Excerpt(source=h.chunk.label, num_tokens=len(h.chunk.token_ids), score=h.score, text=h.chunk.text)
        for h in hits
    ]


def checked(question: str) -> str:
    """Return the question without surrounding space; ValueError if it is empty or very long."""
    question = question.strip()
    if not question:
        raise ValueError("The question is empty: type a question about your documents.")
    if len(question) > MAX_QUESTION:
        raise ValueError(f"The question has {len(question):,} characters: shorten it to {MAX_QUESTION:,}.")
    return question
