"""Who is visiting, also after a restart: a secret in a cookie, which keeps one browser's chunk caches from another's.

The cookie is out of reach of scripts and goes to this server alone; its value is never shown, logged or used as the id
of a session. Whoever sends none, or something else, is somebody new.
"""

from __future__ import annotations

import re
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING

import gradio as gr

from ui.sessions import new_id

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "cacheblend_visitor"
SECRET = re.compile(r"[A-Za-z0-9_-]{24,64}")
A_YEAR_S = 365 * 24 * 3600


def secret_of(request: gr.Request) -> str | None:
    """The secret that the browser sent with an event; None if it sent none that could be ours."""
    return _secret(request.headers.get("cookie", ""))


class VisitorCookie:
    """Gives a browser that opens the page its secret, unless it has one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; a page of HTML for somebody without a secret carries one."""
        if scope["type"] != "http" or _secret(_header(scope["headers"], b"cookie")):
            await self._app(scope, receive, send)
            return

        async def send_with_secret(message: Message) -> None:
            if message["type"] == "http.response.start" and "text/html" in _header(message["headers"], b"content-type"):
                message["headers"] = [*message["headers"], (b"set-cookie", _cookie(scope["scheme"]).encode())]
            await send(message)

        await self._app(scope, receive, send_with_secret)


def _cookie(scheme: str) -> str:
    secure = "; Secure" if scheme == "https" else ""
    return f"{COOKIE}={new_id()}; Path=/; Max-Age={A_YEAR_S}; HttpOnly; SameSite=Lax{secure}"


def _secret(cookies: str) -> str | None:
    found = SimpleCookie(cookies).get(COOKIE)
    return found.value if found and SECRET.fullmatch(found.value) else None


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")
