"""The user's files and what is done to them: worktrees, snapshots, confined access."""
