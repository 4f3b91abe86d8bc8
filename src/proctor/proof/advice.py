"""What to do next about a judgement, in one sentence, read from its receipt alone. Pure.

Reasons are sentences of ours; each that can end a proof has a row here, so that nobody is left with a bare "no".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["next_step"]

_AGAIN: Final = "then run `proctor check` again"
_ROWS: Final = tuple(
    (re.compile(pattern), cure)
    for pattern, cure in (
        (r"^hollow: .*(?:test deleted|test skipped|cases removed)",
         f"Bring the test back as it was and let it pass honestly, {_AGAIN}."),
        (r"^hollow: .*(?:hard-coded|knows it is tested)",
         f"Replace the answer written for the test by code that works for every input, {_AGAIN}."),
        (r"^hollow: .*(?:check edited|verification edited)",
         f"Take the edit of the check back; if it is wanted, make it a change of its own; {_AGAIN}."),
        (r"^hollow: ", f"Put back what the test demanded before, {_AGAIN}."),
        (r"^look at this: ",
         "Look at the lines named above: if they are right, keep the change on your own word; Proctor does not call it"
         " proven."),
        (r"there is no test command",
         "Write `[project]` and `test = \"YOUR TEST COMMAND\"` into proctor.toml (`proctor init` guesses it)."),
        (r"the program was not found|No module named|ModuleNotFoundError",
         "Install what the command needs, or set `test` (and `setup`) in [project] of proctor.toml."),
        (r"[Ss]ubmodule", f"Run `git submodule update --init --recursive` in your checkout once, {_AGAIN}."),
        (r"not run: ", "Run `proctor doctor`: it says what the sandbox lacks on this machine."),
        (r"no test tells before from after",
         f"Add a test that fails without the change, {_AGAIN}. If behaviour should stay the same: `--kind refactor`."),
        (r"pass without the change too",
         f"Write a test that goes red when the change is taken back, {_AGAIN}."),
        (r"weak: ", "Add a test that fails by an assertion on the old code; if it is new, say `--kind feature`."),
        (r"flaky: ", "Make the test steady, or list it under `flaky` in [proof] of proctor.toml."),
        (r"newly red with|its own tests fail", f"Mend what is red (`proctor receipt show` has the output), {_AGAIN}."),
        (r"fails after the change as it did before", "The change does not mend it yet; go on working, {again}."),
        (r"does not notice a break",
         "Let the command test this checkout: an installed copy or another directory is being tested."),
        (r"changed lines are not executed", f"Add a test that reaches the lines named above, {_AGAIN}."),
        (r"unknown whether they execute",
         "Coverage is not known for this language; a person must judge whether the tests reach the change."),
        (r"do not run after it", f"Bring the tests that vanished back, {_AGAIN}."),
        (r"the old ones do not pass", "A refactoring keeps behaviour: check it as `--kind fix` or `--kind feature`."),
        (r"only .* makes the difference", "Say which file holds the fix: what was called source changes nothing."),
        (r"nothing was changed", "There is nothing to judge: edit or commit something, or name a branch or a range."),
        (r"timeout|took longer|time-out",
         "Give it more time with `--timeout`, or fewer tests with [proof.paths] in proctor.toml."),
        (r"leads nowhere|cannot be read|documents' own check", f"Mend what is named above, {_AGAIN}."),
        (r"pictures", "Let the `pictures` command of [proof] write into $PROCTOR_PICTURES."),
        (r"set-up failed",
         "Proofs have no network: run the set-up once yourself in your checkout; what it installs (.venv, node_modules)"
         f" is lent to them; {_AGAIN}."),
        (r"could not be run|could not judge|could not be checked",
         "See the output below; when dependencies changed, `setup` in [project] installs them in the checkout."),
        (r"only tests were changed", "Nothing of the code changed; `--kind docs` or no kind at all fits."),
    )
)  # fmt: skip
_GOOD: Final = {
    "proven": "Commit it",
    "preserved": "Commit it",
    "checked": "Commit it",
    "shown": "Look at the pictures, and commit it",
    "not applicable": "Nothing; there was nothing to run",
}


def next_step(receipt: Mapping[str, Any]) -> str:
    """The one sentence that says how to go on."""
    word = str(receipt["verdict"])
    if word in _GOOD:
        done = receipt["change"].get("commit") is not None and word != "not applicable"
        said = "Merge it" if done and word != "shown" else _GOOD[word]
        return (
            f"{said}."
            if not receipt["legs"]
            else f"{said}; `proctor receipt verify` repeats this in any clone."
        )
    if word == "inconclusive" and any(
        "submodule" in words for words in receipt.get("sandbox", {}).get("missing", ())
    ):
        return f"If the tests need the submodule: `git submodule update --init --recursive`, {_AGAIN}."
    for reason in receipt["reasons"]:
        for pattern, cure in _ROWS:
            if pattern.search(reason):
                return cure.replace("{again}", _AGAIN)
    return "Read the reasons above and the outputs in the receipt (`proctor receipt show FILE --json`)."
