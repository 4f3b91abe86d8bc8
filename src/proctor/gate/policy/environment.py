"""Environment variables that decide which code runs; setting one in front of a command is a way around its name.

Invariant: names are judged by list and prefix; a value matters only where a known one is plainly harmless.
"""

from __future__ import annotations

import re
from typing import Final

from proctor.gate.policy.lists import listed
from proctor.gate.policy.words import Word

__all__ = ["steers_code"]

_NAMES: Final = listed(
    "PATH IFS ENV BASH_ENV SHELLOPTS BASHOPTS PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND CDPATH GLOBIGNORE "
    "BASH_XTRACEFD SHELL HOME ZDOTDIR EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE "
    "SSH_ASKPASS SUDO_ASKPASS SSH_AUTH_SOCK TMPDIR PYTHONSTARTUP PYTHONHOME PYTHONINSPECT "
    "PYTHONBREAKPOINT PYTHONUSERBASE PYTHONEXECUTABLE NODE_OPTIONS NODE_PATH PERL5OPT PERL5LIB PERL5DB "
    "PERLLIB RUBYOPT RUBYLIB GEM_HOME GEM_PATH BUNDLE_GEMFILE JAVA_TOOL_OPTIONS _JAVA_OPTIONS "
    "JDK_JAVA_OPTIONS MAVEN_OPTS GRADLE_OPTS MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES RUSTC RUSTC_WRAPPER "
    "RUSTC_WORKSPACE_WRAPPER RUSTDOC RUSTFLAGS GOFLAGS GOPROXY CGO_CFLAGS CGO_LDFLAGS GREP_OPTIONS "
    "GREP_COLORS TAR_OPTIONS RIPGREP_CONFIG_PATH FZF_DEFAULT_COMMAND GCONV_PATH LOCPATH HOSTALIASES "
    "OPENSSL_CONF SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE HTTP_PROXY HTTPS_PROXY "
    "ALL_PROXY FTP_PROXY XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR TERMINFO "
    "COMPILER_PATH GCC_EXEC_PREFIX EMACSLOADPATH VIMINIT EXINIT MYVIMRC DOCKER_HOST KUBECONFIG "
    "POSIXLY_CORRECT BASH_COMPAT FUNCNEST HISTFILE TCLLIBPATH LUA_INIT LUA_PATH PHPRC"
)
_PREFIXES: Final = (
    "LD_",
    "DYLD_",
    "GIT_",
    "BASH_FUNC_",
    "NPM_CONFIG_",
    "PIP_",
    "UV_",
    "CARGO_",
    "PROCTOR_",
    "AWS_",
    "MALLOC_",
    "YARN_",
)
_COMPILERS: Final = frozenset({"CC", "CXX", "LD", "AR", "CFLAGS", "CXXFLAGS", "LDFLAGS"})
_TOOL: Final = re.compile(
    r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+|ld|ar|ld\.lld|lld)(?:-\d+)?|(?:-[OWgfmsDI][\w=+./-]*+\s*+)*+"
)
_HARMLESS: Final = listed(
    "GIT_PAGER=cat PAGER=cat MANPAGER=cat PAGER= GIT_PAGER= GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 "
    "CARGO_TERM_COLOR=always CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_INCREMENTAL=1 "
    "PIP_DISABLE_PIP_VERSION_CHECK=1 UV_OFFLINE=1 RUSTFLAGS=-Dwarnings EDITOR=true GIT_EDITOR=true "
    "GIT_EDITOR=: PYTHONBREAKPOINT=0 POSIXLY_CORRECT=1 AWS_PROFILE=test GOFLAGS=-mod=mod "
    "GIT_MERGE_AUTOEDIT=no NODE_OPTIONS=--experimental-vm-modules MAKEFLAGS=-j4 CARGO_NET_OFFLINE=true"
)
_AUTHOR: Final = re.compile(r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)")
_MEMORY: Final = re.compile(r"--max[-_]old[-_]space[-_]size=\d+")
_HERE: Final = re.compile(r"(?:\.|\./)?[\w./-]*(?::\.?[\w./-]*)*")


def steers_code(name: str, value: Word) -> bool:
    """Whether setting the variable may change what code runs."""
    upper = name.upper()
    if f"{name}={value.text}" in _HARMLESS or (_AUTHOR.fullmatch(name) and value.text is not None):
        return False
    if upper == "PYTHONPATH":
        return (
            value.text is None
            or not _HERE.fullmatch(value.text)
            or ".." in value.text
            or value.text.startswith("/")
        )
    if upper == "NODE_OPTIONS" and value.text is not None and _MEMORY.fullmatch(value.text):
        return False
    if name in _COMPILERS:
        return value.text is None or not _TOOL.fullmatch(value.text)
    return upper in _NAMES or upper.startswith(_PREFIXES) or not re.fullmatch(r"[A-Za-z_]\w*", name)
