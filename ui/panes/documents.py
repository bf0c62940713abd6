"""The documents pane: upload, samples, the table, and the events that fill it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui import documents_list, header, samples_list
from ui.frame import Page
from ui.guard import guarded, sentence
from ui.indexing import Listing, add_sample, add_uploads, remove
from ui.jobs import model_job, stop_button
from ui.notices import failed
from ui.pickable import pickable
from ui.sessions import Session
from ui.visitor import secret_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsPane:
    """What another pane listens to: `samples` raises pick with a collection's slug."""

    samples: gr.HTML


def build(page: Page) -> DocumentsPane:
    """Lay the pane out and wire it."""
    gr.HTML('<h2 class="step"><i>1</i>Documents</h2>')
    samples = pickable(samples_list.render_samples(page.studio.samples.values()), elem_id="samples")
    uploads = gr.File(
        label="Or upload PDF, DOCX, HTML, Markdown, text", file_count="multiple", height=112, elem_id="uploads"
    )
    status = gr.HTML(elem_id="documents-status", elem_classes="status")
    stop_place = gr.Row(elem_classes="stop-row")
    documents = pickable(documents_list.EMPTY, elem_id="documents")
    shown = [status, documents, page.session, page.header]

    def on_upload(session_id: str | None, files: list[str] | None, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.open(session_id, secret_of(request))
        for listing in guarded(add_uploads(page.studio, session, files or []), with_status):
            yield *outputs(page, session, listing), gr.skip()
        yield *[gr.skip()] * len(shown), None  # the drop zone is empty again

    def on_sample(session_id: str | None, event: gr.EventData, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.open(session_id, secret_of(request))
        for listing in guarded(add_sample(page.studio, session, str(event.value)), with_status):
            yield outputs(page, session, listing)

    def on_remove(session_id: str | None, event: gr.EventData) -> tuple[Any, Any]:
        try:
            return "", remove(page.studio, page.studio.sessions.find(session_id), str(event.value)).documents
        except ValueError as error:
            return failed([sentence(error)]), gr.skip()

    jobs = [
        model_job(
            uploads.upload, on_upload, [page.session, uploads], [*shown, uploads], status=status, api_name="upload"
        ),
        model_job(samples.pick, on_sample, [page.session], shown, status=status),
    ]
    documents.pick(on_remove, page.session, [status, documents], show_progress="hidden", api_visibility="private")
    with stop_place:
        stop_button(page, jobs, status)
    return DocumentsPane(samples=samples)


def with_status(status: str) -> Listing:
    """A listing that leaves the table as it is."""
    return Listing(status=status)


def outputs(page: Page, session: Session, listing: Listing) -> tuple[Any, ...]:
    """The pane's components, in order."""
    table = gr.skip() if listing.documents is None else listing.documents
    return listing.status, table, session.id, header.render(page.studio)
