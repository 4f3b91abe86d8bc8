"""Health: whether an agent can work here and now, from facts, with the sentence that cures it when it cannot.

Nothing is assumed: a program is looked up and asked for its version, a key must be set, Ollama must answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from proctor import __version__
from proctor.agents import registry
from proctor.agents.model_spec import ModelNotReadyError, ModelSpec, spec_of
from proctor.agents.roster import Agent, environment

__all__ = ["Health", "health", "health_of_all"]

VERSION_S = 10.0
OLLAMA_S = 2.0
NOT_YET = "not supported by this version yet"
PROGRAMS: Mapping[str, tuple[str, str]] = {
    "claude": ("claude", "Install it with `npm install -g @anthropic-ai/claude-code` and log in once."),
    "codex": ("codex", "Install it with `npm install -g @openai/codex` and log in once."),
    "gemini": ("gemini", "Install it with `npm install -g @google/gemini-cli` and log in once."),
}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know our localhost
OTHER = "Use another agent: `proctor agents list`."


@dataclass(frozen=True, slots=True)
class Health:
    """What is known about one agent right now."""

    online: bool
    reason: str
    cure: str = ""
    version: str = ""
    present: bool = False
    """Its program, key or server is there, even if it cannot be used."""
    simulated: bool = False


def health(agent: Agent, environ: Mapping[str, str]) -> Health:
    """Look at one agent; takes as long as its program or server needs, within seconds."""
    env = environment(agent, environ)
    if agent.driver == "scripted":
        return Health(True, "ready (simulated)", version=__version__, present=True, simulated=True)
    if agent.driver == "model":
        return _of_model(agent, env)
    if agent.driver in PROGRAMS:
        return _of_program(agent, env)
    if agent.driver in registry.names():
        return Health(True, f"driver {agent.driver} is installed", present=True)
    known = ", ".join(registry.names())
    return Health(False, f"there is no driver {agent.driver!r}", f"Set `driver` to one of: {known}.")


def health_of_all(agents: Iterable[Agent], environ: Mapping[str, str]) -> dict[str, Health]:
    """Look at many agents at once."""
    listed = list(agents)
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="proctor-health") as pool:
        found = pool.map(lambda agent: health(agent, environ), listed)
        return {agent.name: each for agent, each in zip(listed, found, strict=True)}


def _of_program(agent: Agent, env: Mapping[str, str]) -> Health:
    program, cure = PROGRAMS[agent.driver]
    argv = agent.command or (program,)
    found = shutil.which(argv[0], path=env.get("PATH", ""))
    if found is None:
        return Health(False, f"{argv[0]} is not on PATH", cure)
    version, trouble = _version([found, *argv[1:]], env)
    if trouble:
        return Health(
            False, trouble, f"Run `{' '.join(argv)} --version` and mend what it says.", present=True
        )
    if agent.driver not in registry.names():
        return Health(False, f"{agent.driver} is {NOT_YET}", OTHER, version, present=True)
    return Health(True, "ready", version=version, present=True)


def _version(argv: list[str], env: Mapping[str, str]) -> tuple[str, str]:
    """Ask a program for its version; the first line, or what went wrong."""
    try:
        code, output = _ask([*argv, "--version"], env)
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]} --version did not answer within {VERSION_S:g} s"
    except OSError as error:
        return "", f"{argv[0]} cannot be run: {error.strerror}"
    lines = output.strip().splitlines()
    first = lines[0][:200] if lines else ""
    return (first, "") if code == 0 else ("", f"{argv[0]} --version failed: {first}")


def _ask(argv: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run a program with its output in a file: a pipe could be held open by a child of it."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=Path("/"),
            start_new_session=True,
        )
        try:
            code = child.wait(VERSION_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        return code, output.read(4096).decode(errors="replace")


def _of_model(agent: Agent, env: Mapping[str, str]) -> Health:
    """The key is looked for, never tried: that would cost money and time at every look."""
    try:
        spec = spec_of(agent, env)
    except ModelNotReadyError as error:
        return Health(False, str(error.facts["reason"]), str(error.facts["cure"]))
    return _of_ollama(spec) if spec.provider == "ollama" else Health(True, "the key is set", present=True)


def _of_ollama(spec: ModelSpec) -> Health:
    base, model = spec.base_url, spec.model
    try:
        with _OPENER.open(f"{base}/api/tags", timeout=OLLAMA_S) as answer:
            tags = json.loads(answer.read(1 << 20))
            names = {str(model["name"]) for model in tags["models"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        cause = getattr(error, "reason", error)
        return Health(False, f"Ollama does not answer at {base}: {cause}", "Start it with `ollama serve`.")
    if model not in names and f"{model}:latest" not in names:
        return Health(
            False, f"Ollama has no model {model}", f"Fetch it with `ollama pull {model}`.", present=True
        )
    return Health(True, "ready", present=True)
