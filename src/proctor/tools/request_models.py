"""Requests and instructions as callers see them: inputs, rows, outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.tools.models import Moment, Stored, ToolInput, ToolOutput

__all__ = [
    "AnalyzeOut",
    "CreateIn",
    "Instruction",
    "InstructionsOut",
    "NextIn",
    "NextOut",
    "Request",
    "RequestIn",
    "RequestOut",
    "UpdateIn",
    "UpdateOut",
]

RequestType = Literal["feature_integration", "bug_fix", "refactor", "new_feature"]
RowId = Annotated[int, Field(ge=1, lt=2**31)]


class CreateIn(ToolInput):
    """What a person wants."""

    request_text: Annotated[str, Field(min_length=1, max_length=50_000), Stored]
    request_type: RequestType | None = Field(default=None, description="Found by analyze when left out.")


class RequestIn(ToolInput):
    """Which request."""

    request_id: RowId


class NextIn(ToolInput):
    """Of which request; of the oldest by default."""

    request_id: RowId | None = None


class UpdateIn(ToolInput):
    """What became of an instruction."""

    instruction_id: RowId
    status: Literal["pending", "in_progress", "completed", "failed", "verified"]
    github_response: Annotated[str, Field(max_length=100_000), Stored] | None = None
    verification_notes: Annotated[str, Field(max_length=100_000), Stored] | None = None


class Request(BaseModel):
    """A request as it stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int
    request_text: str
    request_type: str | None
    complexity_score: int | None
    architecture_rules_used: list[str]
    files_affected: list[str]
    estimated_instructions: int | None
    status: str
    analysis_notes: str | None
    final_outcome: str | None
    created_at: Moment
    started_at: Moment | None
    completed_at: Moment | None


class Instruction(BaseModel):
    """An instruction as it stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int
    parent_task_id: int
    instruction_sequence: int
    instruction_text: str
    target_file_path: str | None
    expected_outcome: str | None
    status: str
    github_response: str | None
    verification_notes: str | None
    retry_count: int
    created_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    verified_at: Moment | None


class RequestOut(ToolOutput, Request):
    """The request's row."""


class AnalyzeOut(ToolOutput):
    """What the analysis found."""

    message: str
    request_id: int
    status: str
    request_type: str
    complexity_score: int
    architecture_rules_used: list[str]
    files_affected: list[str]
    estimated_instructions: int
    analysis_notes: str


class InstructionsOut(ToolOutput):
    """A request's instructions, in order."""

    message: str
    request_id: int
    parent_task_id: int
    status: str
    instructions: list[Instruction]
    count: int


class NextOut(ToolOutput):
    """The next instruction, now yours, or that there is none."""

    has_next: bool
    message: str
    instruction: Instruction | None = None


class UpdateOut(ToolOutput):
    """The instruction after the change, and where its request stands."""

    message: str
    instruction: Instruction
    request_status: str
