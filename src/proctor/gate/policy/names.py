"""Names of files that hold secrets or steer tools: looked up by name alone, wherever they lie.

Invariant: no file is opened here; globs that could match a secret dot-file count as that file.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

from proctor.gate.policy.lists import listed

__all__ = ["is_git_internal", "is_own_settings", "is_secret", "is_steering"]

_SECRET_NAMES: Final = listed(
    ".env .envrc .netrc _netrc .npmrc .pypirc .yarnrc .git-credentials .pgpass .my.cnf .htpasswd "
    ".vault-token .ssh .aws .azure .gnupg .kube .docker .gcloud .password-store .bash_history "
    ".zsh_history .python_history .mysql_history .psql_history .node_repl_history .boto .s3cfg "
    ".claude.json .codex .gemini id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk "
    "authorized_keys known_hosts shadow gshadow sudoers credentials credentials.json "
    "service-account.json secrets.json secrets.yaml secrets.yml secrets.toml .secrets proctor.db "
    "engine.db terraform.tfstate .terraformrc kubeconfig"
)
_SECRET_SHAPE: Final = re.compile(
    r".*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg)|\.env\..+|id_[a-z0-9]+"
)
_HARMLESS_SHAPE: Final = re.compile(
    r"\.env\.(?:example|sample|template|dist|defaults|schema)|id_[a-z0-9]+\.\w+"
)
_DOTTED: Final = tuple(sorted(name for name in _SECRET_NAMES if name.startswith(".")))
_STEERING: Final = listed(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .inputrc "
    ".vimrc .tmux.conf .gitconfig .config .local crontab .gitmodules .pythonrc .pdbrc .gdbinit"
)

_OWN_SETTINGS: Final = listed("proctor.toml proctor.local.toml")


def is_own_settings(path: str) -> bool:
    """Whether the file decides what Proctor itself allows: rules, profile, limits."""
    return path.lower().rsplit("/", 1)[-1] in _OWN_SETTINGS


def is_secret(path: str) -> bool:
    """Whether any component of the path is known to hold keys, tokens or passwords."""
    return any(_secret_part(part) for part in path.lower().split("/") if part)


def _secret_part(part: str) -> bool:
    if part in _SECRET_NAMES:
        return True
    if _HARMLESS_SHAPE.fullmatch(part):
        return False
    if _SECRET_SHAPE.fullmatch(part):
        return True
    return (
        part[0] in ".?["
        and any(mark in part for mark in "*?[")
        and any(fnmatchcase(name, part) for name in _DOTTED)
    )


def is_git_internal(path: str) -> bool:
    """Whether the path lies in a git directory, where hooks and settings run code."""
    parts = [part for part in path.lower().split("/") if part not in {"", "."}]
    return ".git" in parts or any(
        fnmatchcase(".git", part) for part in parts if any(mark in part for mark in "*?[")
    )


def is_steering(path: str) -> bool:
    """Whether the file decides what later shells and tools run."""
    return any(part in _STEERING for part in path.lower().split("/"))
