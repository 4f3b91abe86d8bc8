"""The scripted agent: a real process that does what a small script in its prompt says. Everything is
simulated.

`python -m proctor.testing.scripted_agent --prompt
'SCRIPT:{"steps":[{"write":"a.txt","content":"hi"},{"say":"done"}]}'` The first key of a step names it; see
`STEPS`. Without a script it writes one small file named after the task. It prints JSON lines. With --state
it remembers finished steps by native id, so `--resume` does not repeat them. Standard library only, so that
it starts fast and runs anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["STEPS", "ScriptError", "ScriptedAgent", "find_script", "main"]

Step = Mapping[str, Any]
SCRIPT, SCRIPT_FILE = "SCRIPT:", "SCRIPT_FILE:"
RUN_SECONDS = 300


class ScriptError(ValueError):
    """The script in the prompt cannot be read."""


class Ended(Exception):  # noqa: N818 - a way out, not an error
    """The script says that the process ends here."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main() -> None:
    """Run the script of one prompt."""
    options = _options()
    if options.prompt is None:
        options.prompt = json.loads(sys.stdin.readline() or "{}").get("prompt", "")
    agent = ScriptedAgent(
        options.prompt, options.native_id, options.task, options.state, resumed=options.resume
    )
    try:
        code = agent.run()
    except Ended as end:
        code = end.code
    except KeyboardInterrupt:
        agent.result(ok=False, text="interrupted")
        code = 130
    sys.stdout.flush()
    os._exit(code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripted_agent", description=__doc__)
    parser.add_argument("--prompt", help='the prompt; otherwise one line {"prompt": …} on standard input')
    parser.add_argument("--native-id", default=f"scripted-{os.getpid()}", help="name of this conversation")
    parser.add_argument("--resume", action="store_true", help="go on with the conversation of that name")
    parser.add_argument("--task", default="task", help="name of the task, for the default script")
    parser.add_argument("--state", type=Path, help="directory that remembers finished steps")
    return parser.parse_args()


def find_script(prompt: str) -> list[Step] | None:
    """Read the steps from the last `SCRIPT:` or `SCRIPT_FILE:` of a prompt; None when it has none."""
    lines = [line.strip() for line in prompt.splitlines()]
    files = [line for line in lines if line.startswith(SCRIPT_FILE)]
    text = Path(files[-1].removeprefix(SCRIPT_FILE).strip()).read_text() if files else None
    if text is None and SCRIPT in prompt:
        text = prompt[prompt.rindex(SCRIPT) + len(SCRIPT) :].lstrip()
    return None if text is None else _steps(text)


def _steps(text: str) -> list[Step]:
    try:
        script, _ = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        raise ScriptError(f"the script is not JSON: {error}") from error
    steps = script.get("steps") if isinstance(script, dict) else script
    if not (isinstance(steps, list) and all(isinstance(step, dict) and step for step in steps)):
        raise ScriptError('the script must be {"steps": [{"<step>": …}, …]}')
    unknown = [key for key in (next(iter(step)) for step in steps) if key not in STEPS]
    if unknown:
        raise ScriptError(f"unknown step {unknown[0]!r}; known: {', '.join(sorted(STEPS))}")
    return steps


class ScriptedAgent:
    """One run of one script."""

    def __init__(self, prompt: str, native_id: str, task: str, state: Path | None, *, resumed: bool) -> None:
        self.prompt = prompt
        self.native_id = native_id
        self.task = task
        self.resumed = resumed
        self.usage = {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
        self.calls = 0
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in native_id)
        self.memory = None if state is None else state / f"scripted-{safe}.json"

    def emit(self, kind: str, **fields: Any) -> None:
        """Print one event."""
        sys.stdout.write(json.dumps({"type": kind, **fields, "simulated": True}, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def result(self, *, ok: bool, text: str) -> None:
        """Print the terminal event."""
        self.emit("result", ok=ok, text=text, native_id=self.native_id, usage=self.usage)

    def run(self) -> int:
        """Do the steps that are not finished yet; the exit code."""
        self.emit("start", native_id=self.native_id, task=self.task, resumed=self.resumed, pid=os.getpid())
        try:
            steps = find_script(self.prompt)
        except (ScriptError, OSError) as error:
            self.result(ok=False, text=str(error))
            return 2
        steps = self._default() if steps is None else steps
        done = self._remembered(steps)
        for number, step in enumerate(steps):
            if number >= done:
                STEPS[next(iter(step))](self, step)
                self._remember(steps, number + 1)
        self.result(ok=True, text="done (simulated)")
        return 0

    def _default(self) -> list[Step]:
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.task)
        first = self.prompt.strip().splitlines()[:1] or ["nothing"]
        content = f"Simulated work of a scripted agent.\nIt was asked: {first[0][:200]}\n"
        return [{"write": f"{name}.txt", "content": content}, {"say": f"Wrote {name}.txt (simulated)."}]

    def _remembered(self, steps: list[Step]) -> int:
        if not (self.resumed and self.memory and self.memory.exists()):
            return 0
        known = json.loads(self.memory.read_text())
        self.usage = known["usage"]
        return int(known["done"]) if known["script"] == _fingerprint(steps) else 0

    def _remember(self, steps: list[Step], done: int) -> None:
        if self.memory is None:
            return
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.memory.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump({"script": _fingerprint(steps), "done": done, "usage": self.usage}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.memory)

    def tool(self, name: str, given: Mapping[str, Any], act: Callable[[], tuple[bool, str]]) -> None:
        """Announce a tool call, do it, tell its result."""
        self.calls += 1
        call = f"call_{self.calls}"
        self.emit("tool_use", id=call, tool=name, input=dict(given))
        try:
            ok, output = act()
        except (OSError, subprocess.TimeoutExpired) as error:
            ok, output = False, str(error)
        self.emit("tool_result", id=call, tool=name, ok=ok, output=output)


def _fingerprint(steps: list[Step]) -> str:
    return hashlib.sha256(json.dumps(steps, sort_keys=True).encode()).hexdigest()


def _say(agent: ScriptedAgent, step: Step) -> None:
    agent.emit("say", text=str(step["say"]))


def _write(agent: ScriptedAgent, step: Step, mode: str = "w") -> None:
    path, content = Path(next(iter(step.values()))), str(step.get("content", ""))

    def act() -> tuple[bool, str]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(content)
        return True, f"{len(content)} characters"

    agent.tool("write" if mode == "w" else "append", {"path": str(path), "content": content}, act)


def _append(agent: ScriptedAgent, step: Step) -> None:
    _write(agent, step, "a")


def _run(agent: ScriptedAgent, step: Step) -> None:
    def act() -> tuple[bool, str]:
        ran = subprocess.run(
            step["run"],
            shell=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_SECONDS,
            check=False,
        )
        return ran.returncode == 0, (ran.stdout + ran.stderr)[-8192:]

    agent.tool("shell", {"command": step["run"]}, act)


def _progress(agent: ScriptedAgent, step: Step) -> None:
    agent.emit("progress", progress=step["progress"], text=step.get("text", ""))


def _milestone(agent: ScriptedAgent, step: Step) -> None:
    agent.emit("milestone", text=str(step["milestone"]))


def _claim(agent: ScriptedAgent, step: Step) -> None:
    """Say that something was done; nothing is done."""
    agent.emit("say", text=str(step["claim"]))
    agent.emit("milestone", text=str(step["claim"]))


def _tokens(agent: ScriptedAgent, step: Step) -> None:
    given, answered = step["tokens"]
    agent.usage["input_tokens"] += int(given)
    agent.usage["output_tokens"] += int(answered)
    agent.usage["cost_usd"] += float(step.get("cost", 0.0))
    agent.emit("usage", **agent.usage)


def _fail(agent: ScriptedAgent, step: Step) -> None:
    agent.result(ok=False, text=str(step["fail"]))
    raise Ended(int(step.get("code", 1)))


def _exit(_agent: ScriptedAgent, step: Step) -> None:
    """End at once and without a result."""
    raise Ended(int(step["exit"]))


def _crash(_agent: ScriptedAgent, step: Step) -> None:
    """Die by a signal, 9 unless another is named."""
    os.kill(os.getpid(), 9 if step["crash"] is True else int(step["crash"]))
    time.sleep(60)


def _hang(_agent: ScriptedAgent, _step: Step) -> None:
    while True:
        time.sleep(3600)


def _sleep(_agent: ScriptedAgent, step: Step) -> None:
    time.sleep(float(step["sleep"]))


def _half_line(_agent: ScriptedAgent, step: Step) -> None:
    """Print half of an event, pause, print the rest."""
    line = json.dumps({"type": "say", "text": str(step["half_line"]), "simulated": True}, ensure_ascii=False)
    data = line.encode()
    for part in (data[: len(data) // 2], data[len(data) // 2 :] + b"\n"):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        time.sleep(float(step.get("pause", 0.1)))


def _long_line(agent: ScriptedAgent, step: Step) -> None:
    agent.emit("say", text="x" * int(step["long_line"]))


def _garbage(_agent: ScriptedAgent, step: Step) -> None:
    """Print a line that is no JSON at all, with bytes that are no UTF-8."""
    sys.stdout.buffer.write(str(step["garbage"]).encode() + b"\xff\xfe\n")
    sys.stdout.buffer.flush()


def _ignore_sigterm(_agent: ScriptedAgent, _step: Step) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _spawn_grandchild(agent: ScriptedAgent, step: Step) -> None:
    """Leave a daemon behind: two forks, its own session, an empty environment, our pipes still in hand."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if note := step.get("note"):
                Path(note).write_text(str(os.getpid()))
            code = f"import time; time.sleep({float(step['spawn_grandchild'])})"
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
        os._exit(0)
    os.wait()
    agent.emit("say", text="left a daemon behind (simulated)")


def _ask(agent: ScriptedAgent, step: Step) -> None:
    """Ask for permission and wait for the answer; `then` is done when allowed, `fail` ends it when denied."""
    agent.calls += 1
    request = f"ask_{agent.calls}"
    asked = step["ask"] if isinstance(step["ask"], dict) else {"tool": str(step["ask"])}
    agent.emit("ask", id=request, tool=asked.get("tool", ""), input=asked.get("input", {}))
    answer = _answer_to(request)
    agent.emit("say", text=f"{'allowed' if answer.get('allow') else 'denied'}: {answer.get('reason', '')}")
    if answer.get("allow"):
        for inner in step.get("then", []):
            STEPS[next(iter(inner))](agent, inner)


def _answer_to(request: str) -> Mapping[str, Any]:
    """Read standard input until the answer comes; a closed pipe is a no."""
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            answer = json.loads(line).get("answer") or {}
            if answer.get("id") == request:
                return dict(answer)
    return {"allow": False, "reason": "nobody is there to answer"}


def _delegate(agent: ScriptedAgent, step: Step) -> None:
    given = step["delegate"]
    agent.emit(
        "delegate", agent=given["agent"], description=given["description"], guidance=given.get("guidance", "")
    )


def _native(_agent: ScriptedAgent, step: Step) -> None:
    """Print an event of a type nobody knows, exactly as given."""
    sys.stdout.write(json.dumps(step["native"], ensure_ascii=False) + "\n")
    sys.stdout.flush()


STEPS: Mapping[str, Callable[[ScriptedAgent, Step], None]] = {
    "append": _append,
    "ask": _ask,
    "claim": _claim,
    "crash": _crash,
    "delegate": _delegate,
    "exit": _exit,
    "fail": _fail,
    "garbage": _garbage,
    "half_line": _half_line,
    "hang": _hang,
    "ignore_sigterm": _ignore_sigterm,
    "long_line": _long_line,
    "milestone": _milestone,
    "native": _native,
    "progress": _progress,
    "run": _run,
    "say": _say,
    "sleep": _sleep,
    "spawn_grandchild": _spawn_grandchild,
    "tokens": _tokens,
    "write": _write,
}

if __name__ == "__main__":
    main()
