"""Receipts run again: the same trees, the same commands, this machine; and whether it comes to the same.

A receipt is believed only as far as it can be seen again: what cannot be found or run here stays inconclusive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.proof.change import Change
from proctor.proof.judgement import Word
from proctor.proof.legs import Leg, Legs
from proctor.proof.receipt import ReceiptError, at_home
from proctor.proof.recipe import follow_recipe
from proctor.proof.results import Context
from proctor.proof.subject import change_between
from proctor.proof.support import unsupported
from proctor.proof.symbols import added_symbols
from proctor.protocol.errors import ProctorError
from proctor.workspace.trees import Trees

__all__ = ["Again", "run_again"]


@dataclass(frozen=True, slots=True)
class Again:
    """What came of it: proven when everything is as the receipt says, refuted when something is not."""

    word: Word
    reasons: tuple[str, ...]
    legs: tuple[Leg, ...] = ()


async def run_again(receipt: Mapping[str, Any], trees: Trees, legs: Legs) -> Again:
    """Run every leg of a receipt again and compare exit codes and tests."""
    try:
        await asyncio.to_thread(_rebuild, receipt, trees)
        change = await asyncio.to_thread(_change, receipt, trees)
        # What the change adds, or a test of something new would look like one that cannot be run.
        legs.context = Context(added_symbols(change), frozenset(file.path for file in change.diff.files))
    except ProctorError as error:
        return Again(Word.INCONCLUSIVE, (f"the change of this receipt cannot be had here: {error}",))
    done: list[Leg] = []
    differences: list[str] = []
    open_ones: list[str] = []
    for old in receipt["legs"]:
        try:
            leg = await _leg(old, trees, legs)
        except ProctorError as error:
            return Again(Word.INCONCLUSIVE, (f"{old.get('name')}: {error}",), tuple(done))
        done.append(leg)
        if not leg.reading.sound and leg.reading.reason != old["tests"]["reason"]:
            open_ones.append(f"{leg.name} could not be run here: {leg.reading.detail}")
        elif difference := _difference(old, leg):
            differences.append(f"{leg.name}: {difference}")
    if differences:
        return Again(Word.REFUTED, tuple(differences), tuple(done))
    if open_ones or not done:
        return Again(Word.INCONCLUSIVE, tuple(open_ones) or ("the receipt holds no run",), tuple(done))
    if missing := await asyncio.to_thread(unsupported, receipt, change, done):
        why = f"the receipt says {receipt['verdict']}, and its runs do not show it: {missing}"
        return Again(Word.REFUTED, (why,), tuple(done))
    return Again(
        Word.PROVEN,
        (f"{len(done)} legs came to the same; the receipt says {receipt['verdict']}",),
        tuple(done),
    )


def _rebuild(receipt: Mapping[str, Any], trees: Trees) -> None:
    """Make the trees of the change: from its commits, or from the base and the patch."""
    change = receipt["change"]
    base = trees.tree(trees.commit(change["base"])) if change.get("base") else trees.empty()
    if change.get("commit"):
        tree: str | None = trees.tree(trees.commit(change["commit"]))
    elif change.get("patch") is not None:
        tree = trees.applied(base, change["patch"]) if change["patch"] else base
    else:
        raise ReceiptError(
            name="the receipt", problem="the work was not committed and was too long to travel with it"
        )
    if tree != change["tree"] or base != change["base_tree"]:
        raise ReceiptError(name="the receipt", problem="the commits it names hold other files")
    for leg in receipt["legs"]:
        _known_tree(trees, leg, base, change["tree"])


def _change(receipt: Mapping[str, Any], trees: Trees) -> Change:
    return change_between(trees, receipt["change"]["base_tree"], receipt["change"]["tree"])


def _known_tree(trees: Trees, leg: Mapping[str, Any], base: str, tree: str) -> None:
    """Make the tree of a leg; it must be the very one the receipt names."""
    if follow_recipe(trees, base, tree, leg["recipe"]) != leg["tree"]:
        raise ReceiptError(
            name="the receipt", problem=f"the tree of its leg {leg['name']!r} cannot be made again"
        )


async def _leg(old: Mapping[str, Any], trees: Trees, legs: Legs) -> Leg:
    commands = [at_home(str(run["argv"][-1]), str(trees.root)) for run in old["runs"]]
    head = await asyncio.to_thread(trees.commit, old["head"])
    return await legs.run(str(old["name"]), str(old["tree"]), head, commands)


def _difference(old: Mapping[str, Any], leg: Leg) -> str:
    then, now = [run["exit_code"] for run in old["runs"]], [each.exit_code for each in leg.ran]
    if then != now:
        return f"exit codes {now} instead of {then}"
    failed = set(old["tests"]["failed"])
    if failed != set(leg.reading.failed):
        changed = sorted(failed ^ set(leg.reading.failed))
        return f"other tests fail: {', '.join(changed[:5])}"
    return ""
