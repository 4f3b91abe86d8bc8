"""The browser: the static pages, one-time links for `proctor open`, signing in and out, and who one is.

The pages are the same for everybody and load nothing from elsewhere; what they show they ask the API for, as whoever is
signed in. A code stands in the part of an address that is never sent, and is used up by the first POST.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from proctor import __version__
from proctor.protocol.errors import UnavailableError
from proctor.server.answers import REFUSALS, json_response
from proctor.server.auth import LOGIN_PATH, presented_cookie, presented_token
from proctor.server.browsers import COOKIE, LINK_SECONDS, SESSION_SECONDS, Browsers
from proctor.server.front import Front

__all__ = ["PAGES", "router"]

PAGES: Final = {
    "/": ("home.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
    "/assets/page.css": ("page.css", "text/css"),
    "/assets/home.js": ("home.js", "text/javascript"),
    "/assets/docs.js": ("docs.js", "text/javascript"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class LinkOut(BaseModel):
    """A way in for one browser, once."""

    path: str = Field(description="To be put behind the server's address.")
    expires_in: int


class LoginIn(BaseModel):
    """The code of a one-time link."""

    code: str = Field(min_length=1, max_length=200)


class LoginOut(BaseModel):
    """What the pages of this browser keep, per address and port."""

    page_key: str
    expires_at: datetime


class Me(BaseModel):
    """Who is asking, and what server this is."""

    user: str
    signed_in: str = Field(description="token, browser or nobody (`--auth none`).")
    version: str
    profile: str
    workspace: str | None = Field(description="None in a server of all workspaces.")
    pages_write: bool = Field(description="Whether the page has shown its key.")


def router(front: Front) -> APIRouter:
    """All routes."""
    routes = APIRouter(responses=REFUSALS)
    _pages(routes)
    _signing(routes, front)
    return routes


def _pages(routes: APIRouter) -> None:
    for path, (name, kind) in PAGES.items():
        body = files("proctor.server").joinpath("pages", name).read_bytes()
        routes.add_api_route(path, _page(body, kind), methods=["GET", "HEAD"], include_in_schema=False)


def _page(body: bytes, kind: str) -> Any:
    async def page() -> Response:
        return Response(body, media_type=kind, headers=dict(_HEADERS))

    return page


def _signing(routes: APIRouter, front: Front) -> None:
    @routes.post("/api/browser/links", response_model=LinkOut, tags=["browser"], summary="A one-time link")
    async def link(request: Request) -> Any:
        front.human(request.scope)
        code = await asyncio.to_thread(_browsers(front).link)
        return {"path": f"/#login={code}", "expires_in": LINK_SECONDS}

    @routes.post(LOGIN_PATH, response_model=LoginOut, tags=["browser"], summary="Sign a browser in")
    async def login(request: Request, said: Annotated[LoginIn, Body()]) -> Response:
        made = await asyncio.to_thread(_browsers(front).redeem, said.code)
        at = datetime.fromtimestamp(made.expires, UTC)
        answer = json_response({"page_key": made.page_key, "expires_at": at}, headers=_NO_STORE)
        secure = request.headers.get("origin", "").startswith("https://")  # a proxy with TLS is before us
        answer.set_cookie(
            COOKIE, made.cookie, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return answer

    @routes.post(
        "/api/browser/logout", response_model=None, tags=["browser"], summary="Sign this browser out"
    )
    async def logout(request: Request) -> Response:
        cookie = presented_cookie(request.scope)
        if cookie is not None:
            await asyncio.to_thread(_browsers(front).end, cookie)
        answer = json_response({"signed_in": False}, headers=_NO_STORE)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    @routes.get("/api/me", response_model=Me, tags=["browser"], summary="Who one is here")
    async def me(request: Request) -> Any:
        return _me(front, request)


_NO_STORE: Final = {"Cache-Control": "no-store"}


def _browsers(front: Front) -> Browsers:
    if front.access.browsers is None:
        raise UnavailableError(
            what="Signing in", reason="this server knows no browsers", cure="Use `proctor open`."
        )
    return front.access.browsers


def _me(front: Front, request: Request) -> dict[str, Any]:
    token = presented_token(request.scope) is not None
    session = None if token else front.access.session(request.scope)
    return {
        "user": front.user,
        "signed_in": "token" if token else "nobody" if session is None else "browser",
        "version": __version__,
        "profile": front.profile,
        "workspace": None if front.home is None else str(front.home),
        "pages_write": session is not None and front.access.page_holds(request.scope, session),
    }
