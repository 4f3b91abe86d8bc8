"""Made-up answers of the request tools, for profiles that allow no real adapter. They say so and store nothing."""

from __future__ import annotations

from proctor.gate.context import Context
from proctor.tools.models import MARK, now
from proctor.tools.request_models import (
    AnalyzeOut,
    CreateIn,
    Instruction,
    InstructionsOut,
    NextIn,
    NextOut,
    RequestIn,
    RequestOut,
    UpdateIn,
    UpdateOut,
)

__all__ = ["mock_analyze", "mock_create", "mock_get", "mock_instructions", "mock_next", "mock_update"]


def _mock_request(text: str, request_id: int = 1) -> RequestOut:
    return RequestOut(
        simulated=True,
        id=request_id,
        request_text=text,
        request_type=None,
        complexity_score=None,
        architecture_rules_used=[],
        files_affected=[],
        estimated_instructions=None,
        status="analyzing",
        analysis_notes=f"{MARK}: nothing was stored",
        final_outcome=None,
        created_at=now(),
        started_at=None,
        completed_at=None,
    )


def _mock_instruction(request_id: int, number: int = 1, status: str = "pending") -> Instruction:
    return Instruction(
        id=number,
        parent_task_id=request_id,
        instruction_sequence=number,
        instruction_text=f"{MARK} instruction",
        target_file_path=None,
        expected_outcome=None,
        status=status,
        github_response=None,
        verification_notes=None,
        retry_count=0,
        created_at=now(),
        started_at=None,
        completed_at=None,
        verified_at=None,
    )


async def mock_create(_context: Context, call: CreateIn) -> RequestOut:
    """Make up an answer; nothing is stored."""
    return _mock_request(call.request_text)


async def mock_get(_context: Context, call: RequestIn) -> RequestOut:
    """Make up an answer; nothing is stored."""
    return _mock_request(f"{MARK} request", call.request_id)


async def mock_analyze(_context: Context, call: RequestIn) -> AnalyzeOut:
    """Make up an answer; nothing is stored."""
    return AnalyzeOut(
        simulated=True,
        message=f"{MARK}: nothing was analyzed",
        request_id=call.request_id,
        status="planned",
        request_type="new_feature",
        complexity_score=1,
        architecture_rules_used=[],
        files_affected=[],
        estimated_instructions=2,
        analysis_notes=MARK,
    )


async def mock_instructions(_context: Context, call: RequestIn) -> InstructionsOut:
    """Make up an answer; nothing is stored."""
    return InstructionsOut(
        simulated=True,
        message=f"{MARK}: nothing was stored",
        request_id=call.request_id,
        parent_task_id=call.request_id,
        status="executing",
        instructions=[_mock_instruction(call.request_id)],
        count=1,
    )


async def mock_next(_context: Context, call: NextIn) -> NextOut:
    """Make up an answer; nothing is stored."""
    instruction = _mock_instruction(call.request_id or 1, status="in_progress")
    return NextOut(
        simulated=True, has_next=True, message=f"{MARK}: nothing was claimed", instruction=instruction
    )


async def mock_update(_context: Context, call: UpdateIn) -> UpdateOut:
    """Make up an answer; nothing is stored."""
    instruction = _mock_instruction(1, call.instruction_id, call.status)
    return UpdateOut(
        simulated=True,
        message=f"{MARK}: nothing was changed",
        instruction=instruction,
        request_status="executing",
    )
