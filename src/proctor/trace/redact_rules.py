"""The table of redaction rules: what a secret or a piece of personal data looks like.

A rule is anchored (a keyword must occur), bounded (no open quantifier, so time is linear) and marks only the
secret itself, not the words around it. Order is priority. Rules look at one line; only a private key spans many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from proctor.trace.redact_checks import (
    PEM_BEGIN,
    email_spans,
    iban_spans,
    is_basic_credentials,
    is_bearer,
    is_card,
    is_cookie,
    is_password,
    is_secret_value,
    pem_spans,
)

__all__ = ["KEY_LENGTH", "KEY_NAMES", "PII_RULES", "SECRET_KEY", "SECRET_RULES", "Rule", "is_secret_key"]

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape. `words`, `raw`, `names` and `shapes` are the keywords of the cheap gate (see redact_gate)."""

    name: str
    pattern: str
    words: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    check: Callable[[str], bool] | None = None
    finder: Callable[[str], Iterator[Span]] | None = None
    regex: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern, re.ASCII))

    def spans(self, line: str) -> Iterator[Span]:
        """Where the secrets of this shape are: the group that took part, or the whole match."""
        if self.finder is not None:
            yield from self.finder(line)
            return
        for match in self.regex.finditer(line):
            start, end = match.span(match.lastindex or 0)
            if self.check is None or self.check(line[start:end]):
                yield start, end


# A letter or digit before the prefix means that the prefix is the middle of another word.
_B = r"(?<![A-Za-z0-9])"
_NAME = (
    r"(?i:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|[_-]pass"
    r"|(?:api|access|private|signing|encryption|account|secret|master)[_. -]?key)"
)
_SUFFIX = r"(?i:[_. -]?(?:[0-9]{1,2}|prod|dev|test|staging|live|value|hash|base64|b64))?"
_ANNOTATED = r":[ \t]{0,2}[A-Za-z_][A-Za-z0-9_.\[\]|]{0,30}[ \t]{0,2}="
_ASSIGN = rf"\\{{0,3}}[\"'`]?\]?[ \t]{{0,3}}(?:{_ANNOTATED}|:=|=>|={{1,3}}|:{{1,2}})[ \t]{{0,3}}"
_VALUE = (
    r"[bfruBFRU]{0,2}(?:"
    r'\\{1,3}"((?:(?!\\{1,3}")[^\n]){4,2048})'
    r'|"((?:[^"\\\n]|\\[^\n]){4,2048})'
    r"|'([^'\n]{4,2048})"
    r"|([^\s\"'`,;&<>]{6,2048}))"
)
_KEYS = tuple(
    f"{kind}key"
    for kind in ("api", "access", "private", "signing", "encryption", "account", "secret", "master")
)
_GITLAB = ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-")
_NAME_KEYWORDS = ("pass", "pwd", "secret", "token", "credential", *_KEYS)

SECRET_RULES: tuple[Rule, ...] = (
    Rule("pem", PEM_BEGIN, raw=("PRIVATE KEY",), finder=pem_spans),
    Rule("anthropic", _B + r"sk-ant-[A-Za-z0-9_-]{16,255}", words=("sk-ant-",)),
    Rule("openai", _B + r"sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,255}", words=("sk-",)),
    Rule("github", _B + r"gh[pousr]_[A-Za-z0-9]{30,255}", words=("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    Rule("github-pat", _B + r"github_pat_[A-Za-z0-9_]{22,255}", words=("github_pat_",)),
    Rule("gitlab", _B + r"gl(?:pat|dt|rt|ptt|cbt|soat)-[A-Za-z0-9_.-]{16,255}", words=_GITLAB),
    Rule("aws-key-id", _B + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", words=("AKIA", "ASIA", "ABIA", "ACCA")),
    Rule(
        "aws-key",
        rf"(?i:secret[_. -]?access[_. -]?key|aws[_. -]?secret(?:[_. -]?key)?){_ASSIGN}[\"'\\]{{0,4}}([A-Za-z0-9/+]{{40}})",
        names=("secret",),
    ),
    Rule("slack", _B + r"(?:xox[abeoprs]|xapp|xoxe\.xox[bp])-[A-Za-z0-9-]{12,255}", words=("xox", "xapp-")),
    Rule(
        "slack-hook",
        r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9_/-]{20,255})",
        raw=("hooks.slack",),
    ),
    Rule("google-key", _B + r"AIza[A-Za-z0-9_-]{35}", words=("AIza",)),
    Rule(
        "google-oauth",
        _B + r"(?:GOCSPX-[A-Za-z0-9_-]{20,64}|ya29\.[A-Za-z0-9_-]{20,1024})",
        words=("GOCSPX-", "ya29."),
    ),
    Rule(
        "stripe",
        _B + r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,255}",
        words=("_live_", "_test_", "whsec_"),
    ),
    Rule("npm", _B + r"npm_[A-Za-z0-9]{36,64}", words=("npm_",)),
    Rule("pypi", _B + r"pypi-[A-Za-z0-9_-]{40,512}", words=("pypi-",)),
    Rule("huggingface", _B + r"(?:hf|api_org)_[A-Za-z0-9]{30,64}", words=("hf_", "api_org_")),
    Rule(
        "jwt",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,2048}){0,3}",
        words=("eyJ",),
    ),
    Rule("sendgrid", _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}", words=("SG.",)),
    Rule("twilio", _B + r"SK[0-9a-f]{32}(?![0-9A-Za-z])", words=("SK",)),
    Rule("telegram", r"(?<![0-9A-Za-z])[0-9]{8,10}:AA[A-Za-z0-9_-]{32,36}", raw=(":AA",)),
    Rule(
        "discord",
        r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{15,22}/([A-Za-z0-9_-]{40,100})",
        raw=("discord",),
    ),
    Rule(
        "discord-bot",
        r"[MNO](?<![A-Za-z0-9][MNO])[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        words=(".",),
    ),
    Rule("azure", r"(?:[?&;]|%26)sig=([A-Za-z0-9%/+=]{32,128})", raw=("sig=",)),
    Rule(
        "azure-client", r"(?<![A-Za-z0-9~._-])([A-Za-z0-9_.-]{3}[0-9]Q~[A-Za-z0-9_.~-]{31,34})", raw=("Q~",)
    ),
    Rule("digitalocean", _B + r"do[por]_v1_[0-9a-f]{64}", words=("_v1_",)),
    Rule("shopify", _B + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", words=("shp",)),
    Rule("docker", _B + r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,64}", words=("dckr_",)),
    Rule("databricks", _B + r"dapi[0-9a-f]{32}(?:-[0-9])?", words=("dapi",)),
    Rule("grafana", _B + r"gl(?:sa|c)_[A-Za-z0-9_]{32,255}", words=("glsa_", "glc_")),
    Rule("atlassian", _B + r"ATATT3x[A-Za-z0-9_-]{16}[A-Za-z0-9_=-]{24,255}", words=("ATATT3x",)),
    Rule("linear", _B + r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}", words=("lin_",)),
    Rule("groq", _B + r"(?:gsk_|xai-)[A-Za-z0-9]{32,128}", words=("gsk_", "xai-")),
    Rule("new-relic", _B + r"NRAK-[A-Z0-9]{27}", words=("NRAK-",)),
    Rule("age", _B + r"AGE-SECRET-KEY-1[0-9A-Z]{50,64}", words=("AGE-SECRET-KEY-",)),
    Rule(
        "url",
        r"://(?:[^\s/@:\"'<>]{0,128}:([^\s/\"'<>]{1,256})|([^\s/@:\"'<>]{20,256}))@",
        raw=("@",),
        check=is_password,
    ),
    Rule(
        "auth-header",
        r"(?i:authorization)[\"'\\]{0,4}[ \t]?[:=][ \t]{0,2}[\"'\\]{0,4}(?:[A-Za-z][A-Za-z0-9-]{2,19}[ \t]{1,2})?"
        r"([^\s\"',;\\]{6,4096})",
        names=("authorization",),
        check=is_secret_value,
    ),
    Rule("bearer", r"(?i:bearer)[ \t]{1,2}([A-Za-z0-9._~+/=-]{8,4096})", names=("bearer",), check=is_bearer),
    Rule(
        "basic",
        r"(?i:basic)[ \t]{1,2}([A-Za-z0-9+/]{8,1024}={0,2})",
        names=("basic",),
        check=is_basic_credentials,
    ),
    Rule(
        "cookie",
        r"(?i:cookie)[\"'\\]{0,4}[ \t]?[:=][ \t]{0,2}[\"'\\]{0,4}([^\s\"'\\][^\r\n\"'\\]{7,4095})",
        names=("cookie",),
        check=is_cookie,
    ),
    Rule(
        "curl-user",
        r"(?<![A-Za-z0-9_-])(?:-u|--user)[ =][\"']?[^\s:\"']{1,64}:([^\s\"']{3,256})",
        raw=("-u ", "-u=", "--user"),
        check=is_password,
    ),
    Rule(
        "flag",
        rf"--[A-Za-z0-9-]{{0,24}}?{_NAME}[ \t]{{1,3}}[\"']?([^\s\"'-][^\s\"']{{3,511}})",
        names=_NAME_KEYWORDS,
        check=is_secret_value,
    ),
    Rule("assignment", _NAME + _SUFFIX + _ASSIGN + _VALUE, names=_NAME_KEYWORDS, check=is_secret_value),
)

PII_RULES: tuple[Rule, ...] = (
    Rule(
        "email",
        r"(?<=[^\s\"'<>(),;:@\[\]])@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
        raw=("@",),
        finder=email_spans,
    ),
    Rule(
        "card",
        r"(?<![\w.+/=#-])(?:[0-9]{13,19}|[0-9]{4}(?:[ -][0-9]{4}){2}[ -][0-9]{1,4}(?:[ -][0-9]{3})?"
        r"|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5})(?![\w/=+-]|\.[0-9])",
        shapes=("0000000000000", "0000-0000-0000-", "0000-000000-"),
        check=is_card,
    ),
    Rule(
        "iban", r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}", shapes=("AA00",), finder=iban_spans
    ),
    Rule(
        "ssn",
        r"(?<![\w-])(?!000|666|9[0-9]{2})[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![\w-])",
        shapes=("000-00-0000",),
    ),
)

SECRET_KEY = (
    r"(?i:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|cookie|authorization|\bauth|(?:\b|_)pass"
    r"|(?:api|access|private|signing|encryption|account|secret|master)[_. -]?key)" + _SUFFIX + "$"
)
KEY_NAMES = (*_NAME_KEYWORDS, "cookie", "auth")
_SECRET_KEY = re.compile(SECRET_KEY, re.ASCII)
KEY_LENGTH = 128


def is_secret_key(key: str) -> bool:
    """Whether a field of this name holds a secret, whatever its value looks like."""
    return len(key) <= KEY_LENGTH and _SECRET_KEY.search(key) is not None
