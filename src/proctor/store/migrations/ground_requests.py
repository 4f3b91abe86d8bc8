"""The seeds' request tables of the first release, as they were on that day; part of the ground migration."""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.migrations.ground_gate import created, json_column, moment

__all__ = ["add_request_tables"]


def add_request_tables(metadata: sa.MetaData) -> None:
    """Describe them in the migration's own metadata."""
    for add in (_solace_user_requests, _github_instruction_queue, _repo_file_cache, _command_jobs):
        add(metadata)


def _solace_user_requests(metadata: sa.MetaData) -> None:
    """What people asked for."""
    solace_user_requests = sa.Table(
        "solace_user_requests",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("request_text", sa.Text, nullable=False),
        sa.Column("request_type", sa.String(50)),
        sa.Column("complexity_score", sa.Integer),
        json_column("architecture_rules_used", "[]"),
        json_column("files_affected", "[]"),
        sa.Column("estimated_instructions", sa.Integer),
        sa.Column("status", sa.String(20), nullable=False, server_default="analyzing"),
        sa.Column("analysis_notes", sa.Text),
        sa.Column("final_outcome", sa.Text),
        created(),
        moment("started_at"),
        moment("completed_at"),
        # Ours, beside the seed's: where it is to be done and who asked.
        sa.Column("workspace", sa.Text),
        sa.Column("trace_id", sa.String(64)),
        sa.Column("created_by", sa.String(100), nullable=False, server_default=""),
        sa.CheckConstraint(
            "request_type IN ('feature_integration','bug_fix','refactor','new_feature')", name="request_type"
        ),
        sa.CheckConstraint("complexity_score BETWEEN 1 AND 10", name="complexity_score"),
        sa.CheckConstraint(
            "status IN ('analyzing','planned','executing','verifying','complete','failed')", name="status"
        ),
    )
    sa.Index("ix_solace_user_requests_status", solace_user_requests.c.status)


def _github_instruction_queue(metadata: sa.MetaData) -> None:
    """The steps of each request, in its own order."""
    github_instruction_queue = sa.Table(
        "github_instruction_queue",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "parent_task_id",
            sa.Integer,
            sa.ForeignKey("solace_user_requests.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("instruction_sequence", sa.Integer, nullable=False),
        sa.Column("instruction_text", sa.Text, nullable=False),
        sa.Column("target_file_path", sa.Text),
        sa.Column("expected_outcome", sa.Text),
        sa.Column("status", sa.String(20), nullable=False, server_default="pending"),
        sa.Column("github_response", sa.Text),
        sa.Column("verification_notes", sa.Text),
        sa.Column("retry_count", sa.Integer, nullable=False, server_default="0"),
        created(),
        moment("started_at"),
        moment("completed_at"),
        moment("verified_at"),
        sa.Column("claimed_by", sa.String(100)),
        sa.CheckConstraint(
            "status IN ('pending','in_progress','completed','failed','verified')", name="status"
        ),
    )
    sa.Index(
        "uq_github_instruction_queue_sequence",
        github_instruction_queue.c.parent_task_id,
        github_instruction_queue.c.instruction_sequence,
        unique=True,
    )
    sa.Index(
        "ix_github_instruction_queue_status",
        github_instruction_queue.c.status,
        github_instruction_queue.c.parent_task_id,
    )


def _repo_file_cache(metadata: sa.MetaData) -> None:
    """What a scan found, by workspace."""
    repo_file_cache = sa.Table(
        "repo_file_cache",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("file_path", sa.Text, nullable=False),
        sa.Column("file_type", sa.String(50)),
        sa.Column("content_hash", sa.String(64)),
        sa.Column("line_count", sa.Integer),
        moment("last_inspected"),
        moment("last_modified"),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("is_tracked", sa.Boolean, nullable=False, server_default=sa.true()),
        json_column("metadata", "{}"),
        created(),
        created("updated_at"),
    )
    sa.Index("uq_repo_file_cache_file", repo_file_cache.c.workspace, repo_file_cache.c.file_path, unique=True)


def _command_jobs(metadata: sa.MetaData) -> None:
    """One row per background command; what it printed stands, redacted, in the trace."""
    command_jobs = sa.Table(
        "command_jobs",
        metadata,
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("call_id", sa.String(64), nullable=False),
        sa.Column("trace_id", sa.String(64), nullable=False),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        created("started_at"),
        moment("stop_requested_at"),
        sa.Column("stop_requested_by", sa.String(100)),
        moment("ended_at"),
        sa.Column("outcome", sa.String(20)),
        sa.Column("exit_code", sa.Integer),
        sa.CheckConstraint(
            "outcome IN ('completed','failed','stopped','timed_out','not_started')", name="outcome"
        ),
    )
    sa.Index("ix_command_jobs_workspace", command_jobs.c.workspace, command_jobs.c.started_at)
