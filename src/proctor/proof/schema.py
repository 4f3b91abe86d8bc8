"""The shape of a fix file, exactly as the contract has it; extra members are kept. The edge where JSON comes in.

`render_schema` publishes it as JSON Schema (docs/reference/fix-file.schema.json), from these very models.
"""

from __future__ import annotations

import json
import posixpath
import re
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from proctor.protocol.decisions import Severity

__all__ = ["DONE", "SCHEMA_ID", "STATUSES", "Fix", "FixFile", "Result", "render_schema", "unsafe_path"]

SCHEMA_ID: Final = "urn:proctor:fix-file:1"
STATUSES: Final = ("FIXED", "NO_CHANGE_NEEDED", "ALREADY_IMPLEMENTED", "PARTIALLY_FIXED", "FAILED")
#: Statuses that claim a change.
DONE: Final = frozenset({"FIXED", "PARTIALLY_FIXED"})

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_RANGE: Final = re.compile(r"([1-9][0-9]{0,6})(?:-([1-9][0-9]{0,6}))?")


def unsafe_path(path: str) -> str | None:
    """Say why a path is not one inside the project, or None."""
    if not path or _CONTROL.search(path):
        return "is empty or holds control characters"
    if path.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:", path):
        return "is absolute; write it from the project's root"
    if "\\" in path:
        return "has backslashes; write it with slashes"
    parts = path.split("/")
    if ".." in parts:
        return "leads outside the project"
    if any(part.lower() == ".git" for part in parts):
        return "lies in git's own directory"
    return None if posixpath.basename(posixpath.normpath(path)) not in {"", "."} else "names no file"


def _path(path: str) -> str:
    if problem := unsafe_path(path):
        raise PydanticCustomError("path", "{problem}", {"problem": problem})
    return path


def _line(value: int | str) -> int | str:
    if isinstance(value, bool) or (isinstance(value, int) and not 1 <= value < 10_000_000):
        raise PydanticCustomError("line", "must be a line number from 1")
    if isinstance(value, str):
        found = _RANGE.fullmatch(value)
        if not found or (found[2] and int(found[2]) < int(found[1])):
            raise PydanticCustomError("line", 'must be a line number such as 85 or a range such as "85-92"')
    return value


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        text = ""
    if len(text) != 10:
        raise PydanticCustomError("date", "must be a day written as YYYY-MM-DD")
    return text


def _said(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return text


Said = Annotated[str, Field(min_length=1), AfterValidator(_said)]
FixId = (
    Annotated[int, Field(ge=0, lt=2**53)]
    | Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
)


class _Kept(BaseModel):
    """Members beyond the contract stay."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Result(_Kept):
    """What the executor says about one fix."""

    status: Literal["FIXED", "NO_CHANGE_NEEDED", "ALREADY_IMPLEMENTED", "PARTIALLY_FIXED", "FAILED"] = Field(
        description="FIXED: done as asked. NO_CHANGE_NEEDED: the code was right. ALREADY_IMPLEMENTED: it was there. "
        "PARTIALLY_FIXED: some of it. FAILED: see problems_encountered."
    )
    verification_command: Said = Field(
        description="One line of bash that works from any directory, can fail, and passes only with the fix."
    )
    hallucination_check: Said = Field(
        description="One line of bash that shows that the change is in the code."
    )
    changes_made: list[str] | None = Field(
        default=None, description="What was changed; wanted if something was fixed."
    )
    finding: str | None = Field(default=None, description="What was found; wanted if nothing was changed.")
    problems_encountered: list[str] | None = None
    solution: str | None = None

    @model_validator(mode="after")
    def _either(self) -> Result:
        if self.status in DONE and not self.changes_made:
            raise PydanticCustomError("changes", "changes_made must say what was changed when the status is {status}",
                                      {"status": self.status})  # fmt: skip
        if self.changes_made is None and not (self.finding or "").strip():
            raise PydanticCustomError("finding", "finding must say what was found when the status is {status}",
                                      {"status": self.status})  # fmt: skip
        return self

    @property
    def claims_change(self) -> bool:
        """Whether the status says that code was changed."""
        return self.status in DONE


class Fix(_Kept):
    """One thing to mend."""

    id: FixId = Field(description="Unique within the file.")
    severity: Severity = Field(
        strict=False,
        description="critical: crashes, data loss, security. major: reliability, performance. minor: quality.",
    )
    file: Annotated[str, AfterValidator(_path)] = Field(
        min_length=1, description="Full path from the project's root."
    )
    line: Annotated[int | str, AfterValidator(_line)] = Field(
        description='Line number, or a range such as "85-92".'
    )
    issue: Said = Field(description="What is wrong.")
    fix: Said = Field(description="What to do.")
    verification: Said = Field(description="How to test that it works.")
    result: Result | None = None

    @property
    def path(self) -> str:
        """The file in its plainest spelling."""
        return posixpath.normpath(self.file)

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line."""
        first, _, last = str(self.line).partition("-")
        return int(first), int(last or first)


class FixFile(_Kept):
    """A file of fixes: goes out to an executor and comes back with a result in every fix."""

    review_id: Said = Field(description="Stays the same through a cycle of fixes.")
    component: Said
    date: Annotated[str, AfterValidator(_day)] = Field(description="YYYY-MM-DD")
    assigned_to: Said
    instructions: Said
    fixes: list[Fix] = Field(min_length=1)
    previous_file: str | None = Field(default=None, description="The file this one follows up.")


def render_schema() -> str:
    """Render the JSON Schema that is published; editors find it through `$schema`."""
    body: dict[str, Any] = FixFile.model_json_schema(by_alias=True)
    body.pop("title", None)
    properties = {"$schema": {"type": "string"}, **body.pop("properties")}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Fix file",
        "$comment": "Generated by `python3 dev.py docs` from src/proctor/proof/schema.py; ids must be unique in a file.",
    }
    definitions = body["$defs"]
    definitions["Fix"]["properties"]["line"] = {
        "description": definitions["Fix"]["properties"]["line"]["description"],
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^{_RANGE.pattern}$"}],
    }
    definitions["Result"]["allOf"] = [
        _when_done(),
        {"anyOf": [{"required": ["changes_made"]}, {"required": ["finding"]}]},
    ]
    return json.dumps({**head, **body, "properties": properties}, indent=2, ensure_ascii=False) + "\n"


def _when_done() -> dict[str, Any]:
    changes = {"required": ["changes_made"], "properties": {"changes_made": {"type": "array", "minItems": 1}}}
    return {"if": {"properties": {"status": {"enum": sorted(DONE)}}}, "then": changes}
