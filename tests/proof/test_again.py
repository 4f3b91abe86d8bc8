"""Receipts run again: what did not exist before is told from what cannot be run, and a forged word is not believed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from proctor.proof.again import run_again
from proctor.proof.judgement import Word
from proctor.proof.legs import Legs
from proctor.proof.record import Recorder
from proctor.proof.workbench import Wish
from proctor.store.database import Database
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.proof.repos import new_repo, write
from tests.proof.test_verify import KEY, bench

FILES = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "proctor.toml": '[project]\ntest = "python3 -m pytest -q -p no:cacheprovider"\n'
    '[project.env]\nPYTEST_DISABLE_PLUGIN_AUTOLOAD = "1"\n',
}
NEW = {
    "calc.py": FILES["calc.py"] + "\n\ndef sub(a, b):\n    return a - b\n",
    "test_calc.py": "from calc import add, sub\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
    "def test_sub():\n    assert sub(3, 2) == 1\n",
}


async def test_receipt_of_a_new_function_comes_to_the_same(tmp_path: Path, sqlite_database: Database) -> None:
    """Its tests cannot be imported without the change, here as where it was made: that is the evidence."""
    place = new_repo(tmp_path / "repo", FILES)
    write(place, NEW)
    work = bench(place, tmp_path / "home")
    found = await work.check(Wish())
    assert found.word is Word.PROVEN, found
    with TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        receipt, _ = Recorder(writer, tmp_path / "receipts", work.trees, str).record(found)
    fresh = bench(place, tmp_path / "home2")
    again = await run_again(receipt, fresh.trees, Legs(fresh.runner))
    assert again.word is Word.PROVEN, again.reasons


async def test_a_word_that_its_runs_do_not_show_is_not_believed(
    tmp_path: Path, sqlite_database: Database
) -> None:
    """A receipt that anybody may have written says "proven" of runs that come to the same and prove nothing."""
    place = new_repo(tmp_path / "repo", FILES)
    write(place, {"calc.py": FILES["calc.py"].replace("a + b", "b + a")})
    work = bench(place, tmp_path / "home")
    found = await work.check(Wish())
    assert found.word is not Word.PROVEN
    with TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        receipt, _ = Recorder(writer, tmp_path / "receipts", work.trees, str).record(found)
    for forged in (_without_before(receipt), _of_another_command(receipt), {**receipt, "verdict": "proven"}):
        again = await run_again(forged, work.trees, Legs(work.runner))
        assert again.word is Word.REFUTED, again.reasons
        assert "do not show it" in again.reasons[0]


def _without_before(receipt: dict[str, Any]) -> dict[str, Any]:
    forged = {**copy.deepcopy(receipt), "verdict": "proven"}
    forged["legs"] = [leg for leg in forged["legs"] if leg["name"] == "after"]
    return forged


def _of_another_command(receipt: dict[str, Any]) -> dict[str, Any]:
    """The leg before failed all right: its command was another one."""
    forged = {**copy.deepcopy(receipt), "verdict": "proven"}
    for leg in forged["legs"]:
        if leg["name"] == "before":
            leg["runs"][0] |= {"argv": ["bash", "--noprofile", "--norc", "-c", "false"], "exit_code": 1}
    return forged
