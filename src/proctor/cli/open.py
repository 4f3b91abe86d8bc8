"""`proctor open` and `proctor logout`: the supervisor's pages in a browser, by a link that works once; and everybody out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.config import Settings

__all__ = ["logout", "one_time_link", "open_", "show_in_browser"]

ANSWER_SECONDS = 30.0
MAX_ANSWER = 65_536


@click.command("open")
@click.option("--browser/--no-browser", default=True, help="Open it, or only print the link.")
@json_option
def open_(browser: bool, as_json: bool) -> None:
    """Show Proctor in your browser; starts the supervisor when none runs.

    The link signs one browser in: it works once and for two minutes.
    """
    from proctor.cli.approve import recognised
    from proctor.cli.proving import Progress
    from proctor.config import load_settings
    from proctor.engine.client import open_doors

    settings = load_settings()
    recognised(settings)
    progress = Progress()
    progress("Starting the supervisor …")
    try:
        http = open_doors(settings).http
    finally:
        progress.done()
    link, seconds = one_time_link(settings, http)
    opened = browser and not as_json and show_in_browser(link, settings)
    if as_json:
        print_json({"http": http, "link": link, "expires_in": seconds, "opened": opened}, line=True)
    elif opened:
        click.echo(f"{http} is open in your browser.")
    else:
        click.echo(f"{link}\nIt works once, within {seconds // 60} minutes.")


def one_time_link(settings: Settings, http: str) -> tuple[str, int]:
    """Ask a server of this user for a link; how long it is good, in seconds."""
    answer = _post(http, "/api/browser/links", settings)
    return http + str(answer["path"]), int(answer["expires_in"])


def _post(http: str, path: str, settings: Settings) -> dict[str, Any]:
    import http.client as web
    import json
    from contextlib import closing
    from urllib.parse import urlsplit

    from proctor.gate.humans import load_token
    from proctor.protocol.errors import UnavailableError

    parts = urlsplit(http)
    assert parts.hostname is not None
    # Straight to the address: a proxy of the environment has no business with the token.
    with closing(web.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_SECONDS)) as line:
        try:
            token = load_token(settings.paths.token_file)
            line.request("POST", path, headers={"Authorization": f"Bearer {token}", "Content-Length": "0"})
            answer = line.getresponse()
            body = json.loads(answer.read(MAX_ANSWER))
        except (OSError, web.HTTPException, ValueError) as error:
            reason = f"no sensible answer ({error})"
            raise UnavailableError(what=http, reason=reason, cure="See `proctor doctor`.") from error
    if answer.status != 200:
        cure = "`proctor supervisor stop`, then try again."
        raise UnavailableError(what=http, reason=str(body.get("error", answer.status)), cure=cure)
    return dict(body)


def show_in_browser(link: str, settings: Settings) -> bool:
    """Whether a browser took it; without a screen none is tried, and one in the terminal would be in the way."""
    import sys
    import webbrowser

    wanted = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"}
    if sys.platform != "darwin" and not wanted & set(settings.environ):
        return False
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


@click.command()
@json_option
def logout(as_json: bool) -> None:
    """Make a new token: every browser is signed out, and programs need the new one."""
    from proctor.cli.approve import recognised
    from proctor.config import load_settings
    from proctor.gate.humans import load_token

    settings = load_settings()
    recognised(settings)
    token = settings.paths.token_file
    token.unlink(missing_ok=True)
    settings.paths.browsers_file.unlink(missing_ok=True)
    load_token(token)
    if as_json:
        print_json({"token_file": str(token)}, line=True)
    else:
        click.echo(f"Everybody is signed out. The new token is in {token}.")
