"""The served page through gradio_client: what a visitor's browser calls, and what it must not be able to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from cacheblend.trace import COMPARED, Mode
from tests.app.live import live

MODES = ["full", "reuse", "blend"]
FORM = (MODES, 15, "paper", "hkvd", "single", "value", "bare", 6, "relevance", 0, 64)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with live(tmp_path_factory.mktemp("samples"), pause_s=0.02) as served:
        yield served


def files(folder, texts):
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return [handle_file(folder / name) for name in texts]


def upload(client, folder, texts):
    """Return (status, table) after an upload."""
    job = client.submit(files(folder, texts), api_name="/upload")
    job.result()
    shown = [(status, table) for status, table, *_ in job.outputs() if isinstance(table, str)]
    return shown[-1]


def ask(client, question, form=FORM):
    """Return (status, heading, full, reuse, blend, chunks) at the end of a question; columns come in Mode's order."""
    job = client.submit(question, *form, api_name="/ask")
    job.result()
    status, heading, *columns, chunks = job.outputs()[-1][: len(Mode) + 3]
    shown = dict(zip(Mode, columns, strict=True))
    return status, heading, *(shown[mode] for mode in COMPARED), chunks


def test_ten_files_one_of_them_bad_then_a_question(page, tmp_path):
    client = Client(page.url, verbose=False)
    texts = {f"good-{i}.txt": f"Chapter {i} is about Ada." for i in range(9)} | {"bad.pdf": b"%PDF-1.4 cut short"}
    status, table = upload(client, tmp_path / "ten", texts)
    assert "9 documents added" in status
    assert "bad.pdf" in status
    assert table.count("data-pick") == 9
    status, heading, full, reuse, blend, chunks = ask(client, "Who is chapter 3 about?")
    assert status == ""
    assert "Who is chapter 3 about?" in heading
    assert "It was Ada." in full
    assert "35 × faster" in reuse
    assert "Same answer as full, 4.7 × sooner." in blend
    assert "good-3.txt" in chunks


def test_two_visitors_at_once_keep_their_documents_and_take_turns(page, tmp_path):
    def visit(name: str) -> str:
        client = Client(page.url, verbose=False)
        upload(client, tmp_path / name, {f"{name}.txt": f"The secret of {name} is here."})
        return ask(client, "What is the secret?")[5]

    with ThreadPoolExecutor(2) as pool:
        anna, bert = pool.map(visit, ["anna", "bert"])
    assert "anna.txt" in anna
    assert "bert" not in anna
    assert "bert.txt" in bert
    assert "anna" not in bert
    assert page.engine.most_running == 1


def test_what_cannot_be_asked_is_refused_in_a_sentence(page, tmp_path):
    client = Client(page.url, verbose=False)
    assert "There are no documents yet" in ask(client, "Who?")[0]
    upload(client, tmp_path / "some", {"ada.txt": "Ada wrote it."})
    assert "question is empty" in ask(client, "   ")[0]
    assert "at least one mode" in ask(client, "Who?", ([], *FORM[1:]))[0]
    with pytest.raises(AppError, match="greater than maximum value 100"):
        ask(client, "Who?", (MODES, 900, *FORM[2:]))
    page.engine.context_limit, kept = 1, page.engine.context_limit
    try:
        assert "drop ada.txt" in ask(client, "Who?")[0]
    finally:
        page.engine.context_limit = kept
    assert "It was Ada." in ask(client, "Who?")[2], "a refusal left the visitor unable to go on"


def test_only_what_is_meant_to_be_called_has_a_name(page):
    named = Client(page.url, verbose=False).view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(named) == {"/upload", "/ask"}


@pytest.mark.parametrize("path", ["/monitoring", "/gradio_api/file=/etc/passwd", "/gradio_api/file=app.py"])
def test_what_must_not_be_served_is_not(page, path):
    assert httpx.get(page.url.rstrip("/") + path).status_code in {401, 403, 404}


def test_the_page_says_nothing_of_other_hosts(page):
    config = httpx.get(page.url.rstrip("/") + "/config").json()
    assert config["analytics_enabled"] is False
    assert config["run_history"] in (False, None)
    styles = " ".join(config.get("stylesheets") or []) + httpx.get(page.url.rstrip("/") + "/theme.css").text
    assert "fonts.googleapis" not in styles
    assert "http" not in styles.replace("http://www.w3.org", "")
