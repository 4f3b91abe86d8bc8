"""The append-only log: group commit, hash chain, redaction, cursors (replay and live), signals, export."""
