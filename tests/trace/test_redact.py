"""Redaction: what must go goes, what must stay stays, twice changes nothing, pieces make the whole."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.trace.redact import Redactor, StreamRedactor
from proctor.trace.redact_gate import RULES, FastGate
from proctor.trace.redact_marker import MARKER

KEY = b"a key that lies outside the database"
KNOWN = ("hunter2/known+value", "two lines\nof one secret")
HEX = "0123456789abcdef"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83vASNFZ4mr\n-----END RSA PRIVATE KEY-----"


def mixed(length: int, seed: str = "aZ9bY8cX7dW6eV5f") -> str:
    """Letters and digits that look drawn by lot; put together here so that no scanner takes the file for a leak."""
    return (seed * (length // len(seed) + 1))[:length]


# rule -> (text, the part that must be gone)
SAMPLES: dict[str, tuple[str, str]] = {
    "pem": (json.dumps({"pem": PEM}), "MIIEowIBAAKCAQEA"),
    "anthropic": (f"key sk-ant-api03-{mixed(40)} used", mixed(40)),
    "openai": (f"key sk-proj-{mixed(48)} used", mixed(48)),
    "github": (f"remote: ghp_{mixed(36)}.", mixed(36)),
    "github-pat": (f"github_pat_{mixed(22)}_{mixed(59)}", mixed(59)),
    "gitlab": (f"glpat-{mixed(20)}", mixed(20)),
    "aws-key-id": ("id AKIA" + "ABCDEFGH12345678", "ABCDEFGH12345678"),
    "aws-key": (f"aws_secret_access_key = {mixed(38)}/+", mixed(38)),
    "slack": (f"xoxb-123456789012-{mixed(24)}", mixed(24)),
    "slack-hook": (f"https://hooks.slack.com/services/T000/B000/{mixed(24)}", mixed(24)),
    "google-key": (f"AIza{mixed(35)}", mixed(35)),
    "google-oauth": (f"ya29.{mixed(60)}", mixed(60)),
    "stripe": (f"sk_live_{mixed(24)}", mixed(24)),
    "npm": (f"//registry/:_auth npm_{mixed(36)}", mixed(36)),
    "pypi": (f"pypi-{mixed(80)}", mixed(80)),
    "huggingface": (f"hf_{mixed(34)}", mixed(34)),
    "jwt": (f"eyJ{mixed(20)}.{mixed(40)}.{mixed(43)}", mixed(40)),
    "sendgrid": (f"SG.{mixed(22)}.{mixed(43)}", mixed(43)),
    "twilio": (f"SK{HEX * 2}", HEX * 2),
    "telegram": (f"bot123456789:AA{mixed(33)}".replace("bot", "bot "), mixed(33)),
    "discord": (f"https://discord.com/api/webhooks/123456789012345678/{mixed(68)}", mixed(68)),
    "discord-bot": (f"M{mixed(25)}.{mixed(6)}.{mixed(38)}", mixed(38)),
    "azure": (f"https://x.blob/y?sv=1&sig={mixed(43)}%3D", mixed(43)),
    "azure-client": (f"abc8Q~{mixed(33)}", mixed(33)),
    "digitalocean": (f"dop_v1_{HEX * 4}", HEX * 4),
    "shopify": (f"shpat_{HEX * 2}", HEX * 2),
    "docker": (f"dckr_pat_{mixed(27)}", mixed(27)),
    "databricks": (f"dapi{HEX * 2}", HEX * 2),
    "grafana": (f"glsa_{mixed(32)}_{HEX[:8]}", mixed(32)),
    "atlassian": (f"ATATT3x{mixed(60)}", mixed(60)),
    "linear": (f"lin_api_{mixed(40)}", mixed(40)),
    "groq": (f"gsk_{mixed(52)}", mixed(52)),
    "new-relic": ("NRAK-" + mixed(27).upper(), mixed(27).upper()),
    "age": ("AGE-SECRET-KEY-1" + mixed(58).upper(), mixed(58).upper()),
    "url": ("postgres://app:s3cr3t@db.internal/x", "s3cr3t"),
    "auth-header": ("Authorization: Digest 0a1b2c3d4e", "0a1b2c3d4e"),
    "bearer": ("sent bearer 0a1b2c3d4e to the server", "0a1b2c3d4e"),
    "basic": ("with Basic " + base64.b64encode(b"me:pass").decode(), base64.b64encode(b"me:pass").decode()),
    "cookie": ("Set-Cookie: sid=0a1b2c3d; Path=/", "0a1b2c3d"),
    "curl-user": ("curl -u me:pa55word https://host", "pa55word"),
    "flag": ("login --auth-token 0a1b2c3d4e --verbose", "0a1b2c3d4e"),
    "assignment": ("DB_PASSWORD=correct-horse", "correct-horse"),
    "email": ("from jane.doe+x@mail.example.org, thanks", "jane.doe"),
    "card": ("paid with 4111 1111 1111 1111 today", "1111"),
    "iban": ("to DE89 3704 0044 0532 0130 00 today", "0532"),
    "ssn": ("number 078-05-1120 on file", "078-05"),
}

FORMS = [
    'api_key = "0a1b2c3d"',
    "api-key: 0a1b2c3d",
    "export API_KEY='0a1b2c3d'",
    '{"apiKey": "0a1b2c3d"}',
    '{\\"access_token\\": \\"0a1b2c3d\\"}',
    "https://host/x?access_token=0a1b2c3d&y=1",
    'os.environ["CLIENT_SECRET"] = "0a1b2c3d"',
    'password: str = "0a1b2c3d"',
    "AccountKey=0a1b2c3d;EndpointSuffix=core",
    "secret => '0a1b2c3d'",
    "if token == '0a1b2c3d':",
    '"password":"0a1b2c3d"',
]

SECRET_NAMES = [
    "password",
    "DB_PASSWORD",
    "api_key",
    "apiKey",
    "x-api-key",
    "token",
    "authToken",
    "Authorization",
    "auth",
]

CLEAN = [
    "",
    "Read 120 lines of src/proctor/store/database.py in 12 ms",
    "01890a5d-ac96-774b-bcce-4111111111111111",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 4111111111111111aaaa and 1763200000123456789 ns",
    "password: ${DB_PASSWORD}",
    "password=$DB_PASSWORD",
    "token = get_token(session)",
    "token = self.settings.token",
    "password: string",
    "token: expired",
    '{"input_tokens": 1200, "output_tokens": 88}',
    "tokens=123456 max_tokens: 100000",
    "git clone git@github.com:owner/name.git",
    "icon@2x.png lodash@4.17.21 @property @dataclass(frozen=True)",
    "http://localhost:8080/path and https://example.org:443/a@b",
    "docker run -u 1000:1000 image",
    "basic training and bearer authentication",
    "task-0189-0a5d-ac96-774b-bcce risk-assessment-of-the-whole-thing",
    "2026-11-15 10:22:33.123456 INFO 127.0.0.1:8765 - 200",
    "GB00 WEST 1234 5698 7654 32 is no account",
    "4111 1111 1111 1112 is no card",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
]


def make(*, fast: bool = True, known: Sequence[str] = (), pii: bool = True) -> Redactor:
    """A redactor whose fast gate, if any, is in use from the first text."""
    return Redactor(key=KEY, known=known, pii=pii, use_fast=fast, warm_up=0)


SLOW, FAST = make(fast=False, known=KNOWN), make(fast=True, known=KNOWN)
BOTH = pytest.mark.parametrize("redactor", [SLOW, FAST], ids=["keywords", "hyperscan"])

pieces = st.one_of(
    st.sampled_from([text for text, _ in SAMPLES.values()]),
    st.sampled_from([secret for _, secret in SAMPLES.values()]),
    st.sampled_from(FORMS + CLEAN + PEM.split("\n") + [PEM, *KNOWN, KNOWN[1].split("\n")[0]]),
    st.sampled_from("\n\r =:\"'\\@-_.[]\0éİ\ud800"),
    st.sampled_from(
        [
            "[REDACTED:github:abcdef]",
            "[REDACTED:",
            "password",
            "token=",
            "sk-",
            "AKIA",
            "eyJ",
            "--secret ",
            "://",
        ]
    ),
    st.text(max_size=12),
)
texts = st.lists(pieces, max_size=12).map("".join)


def test_every_rule_has_a_sample() -> None:
    """A rule without a sample is a rule nobody has seen work."""
    assert {rule.name for rule in RULES} == set(SAMPLES)


@BOTH
@pytest.mark.parametrize("rule", sorted(SAMPLES))
def test_secret_is_replaced_by_a_mark_of_its_rule(redactor: Redactor, rule: str) -> None:
    """Alone, inside other text, and with non-ASCII around it."""
    text, secret = SAMPLES[rule]
    for whole in (text, f"line\n{text}\nline", f"{{'x': '{text}'}}", f"é {text} é"):
        redacted = redactor.text(whole)
        assert secret not in redacted
        assert f"[REDACTED:{rule}:" in redacted


@BOTH
@pytest.mark.parametrize("text", FORMS)
def test_assignment_is_found_in_every_form(redactor: Redactor, text: str) -> None:
    """Environment, JSON, escaped JSON, YAML, URL and code."""
    redacted = redactor.text(text)
    assert "0a1b2c3d" not in redacted
    assert MARKER.sub("0a1b2c3d", redacted) == text


@BOTH
@pytest.mark.parametrize("text", CLEAN)
def test_clean_text_comes_back_as_the_same_object(redactor: Redactor, text: str) -> None:
    """No false alarm on what is in every log."""
    assert redactor.text(text) is text


@BOTH
@pytest.mark.parametrize(
    "lines",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(PEM.split("\n"), 1)),
        "\n".join("  " + line for line in PEM.split("\n")),
        "\n".join(PEM.split("\n")[:3]),
        PEM.replace("\nMIIE", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIE"),
        PEM.replace("RSA ", "OPENSSH "),
    ],
    ids=["plain", "crlf", "numbered", "indented", "cut off", "with headers", "ssh"],
)
def test_private_key_of_many_lines_leaves_one_mark(redactor: Redactor, lines: str) -> None:
    """However the lines are decorated, and even if the end is missing."""
    redacted = redactor.text(f"before\n{lines}\n\nafter the key: more\n")
    assert "MIIE" not in redacted
    assert "q83v" not in redacted
    assert redacted.count("[REDACTED:pem:") == 1
    assert redacted.startswith("before\n")
    assert redacted.endswith("after the key: more\n")


@BOTH
def test_known_value_is_found_in_every_form_it_travels_in(redactor: Redactor) -> None:
    """All forms carry the same mark, so that they can be seen to be the same value."""
    value = KNOWN[0]
    forms = [
        value,
        quote(value, safe=""),
        quote(value, safe="").lower(),
        json.dumps(value)[1:-1],
        *(base64.b64encode(b"x" * n + value.encode() + b"tail").decode() for n in range(4)),
        base64.urlsafe_b64encode(b"user:" + value.encode()).decode(),
    ]
    marks = {redactor.text(f"<{form}>") for form in forms}
    assert len(marks) == 1
    assert marks.pop().startswith("<[REDACTED:known:")


@BOTH
def test_known_value_over_two_lines_is_found(redactor: Redactor) -> None:
    """Raw, and escaped as it stands in JSON."""
    assert MARKER.fullmatch(redactor.text(KNOWN[1]))
    assert MARKER.fullmatch(redactor.text(json.dumps(KNOWN[1])[1:-1]))


def test_short_known_values_are_ignored() -> None:
    """Seven characters would be found by chance."""
    redactor = make(known=["seven77", "eight888"], pii=False)
    assert redactor.text("seven77 eight888").count("[REDACTED:known:") == 1
    assert redactor.text("seven77") == "seven77"


def test_equal_values_are_comparable_only_under_one_key() -> None:
    """The digits depend on the value and the key, and on nothing else."""
    token = f"ghp_{mixed(36)}"
    mark = SLOW.text(token)
    assert SLOW.text(f"see {token}!") == f"see {mark}!"
    assert SLOW.text(f"token={token}") == f"token={mark}"
    assert Redactor(key=b"another key").text(token) != mark
    with pytest.raises(ValueError, match="empty"):
        Redactor(key=b"")


def test_without_pii_only_secrets_go() -> None:
    """Contents of files keep their addresses, or agents would write marks into code."""
    text = "mail jane@example.org, card 4111 1111 1111 1111, 078-05-1120, DE89 3704 0044 0532 0130 00"
    for fast in (False, True):
        redactor = make(fast=fast, pii=False)
        assert redactor.text(text) is text
        assert "s3cr3t" not in redactor.text(SAMPLES["url"][0])


@given(texts)
@settings(max_examples=300, deadline=None)
def test_redacting_twice_changes_nothing(text: str) -> None:
    """Marks are never redacted again and lay nothing bare."""
    once = SLOW.text(text)
    assert SLOW.text(once) == once


@given(texts)
@settings(max_examples=300, deadline=None)
def test_both_gates_give_the_same_text(text: str) -> None:
    """The fast matcher makes it faster, never different."""
    assert FAST.text(text) == SLOW.text(text)
    assert FAST.value({"k": [text]}) == SLOW.value({"k": [text]})


@given(texts, st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=300, deadline=None)
def test_any_split_of_a_stream_gives_the_whole(text: str, cuts: list[int]) -> None:
    """Also in the middle of a token, a known value of two lines or a private key."""
    stream = StreamRedactor(SLOW)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    out = [stream.feed(text[a:b]) for a, b in pairwise(places)]
    assert "".join(out) + stream.flush() == SLOW.text(text)


def test_stream_by_single_characters_gives_the_whole() -> None:
    """The finest split there is, over every sample."""
    text = "\n".join([*(text for text, _ in SAMPLES.values()), *CLEAN, PEM, *KNOWN])
    stream = StreamRedactor(FAST)
    assert "".join(map(stream.feed, text)) + stream.flush() == FAST.text(text)


def test_stream_gives_out_lines_as_they_end() -> None:
    """Live output is not held back longer than a line."""
    stream = StreamRedactor(make())
    assert stream.feed("one\ntw") == "one\n"
    assert stream.feed("o\n") == "two\n"
    assert stream.feed("end") + stream.flush() == "end"


@pytest.mark.parametrize("blank", ["", " "], ids=["no blank", "blanks"])
def test_endless_line_is_cut_around_secrets(blank: str) -> None:
    """Memory is bounded, and no secret is lost at the place of the cut, wherever that falls."""
    token = f"ghp_{mixed(36)}"
    text = f"{blank}{token},{blank}" * 6000
    stream = StreamRedactor(SLOW, line_limit=20_000)
    out = [stream.feed(text[start : start + 7001]) for start in range(0, len(text), 7001)]
    joined = "".join(out) + stream.flush()
    assert sum(map(bool, out)) > 3
    assert "ghp_" not in joined
    assert joined == SLOW.text(text)


@BOTH
def test_value_is_redacted_in_depth_and_keeps_its_form(redactor: Redactor) -> None:
    """Keys stay unless they hold a secret; scalars and containers stay what they were."""
    token = f"ghp_{mixed(36)}"
    value = {"a": [1, (token, None)], "b": {"c": 2.5, token: True}, 7: {token}, "raw": token.encode()}
    mark = redactor.text(token)
    redacted = redactor.value(value)
    assert redacted == {"a": [1, (mark, None)], "b": {"c": 2.5, mark: True}, 7: {mark}, "raw": mark.encode()}
    assert redactor.value(redacted) == redacted


@BOTH
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_string_under_the_name_of_a_secret_goes_whole(redactor: Redactor, name: str) -> None:
    """However short it is, also in a list; numbers and other names stay."""
    redacted = redactor.value({name: "x y", "in": [{name: ["a", "b"]}], "n": {name: 5}, "e": {name: ""}})
    assert MARKER.fullmatch(redacted[name])
    assert all(map(MARKER.fullmatch, redacted["in"][0][name]))
    assert redacted["n"] == {name: 5}
    assert redacted["e"] == {name: ""}
    assert redactor.value(redacted) == redacted


@BOTH
def test_clean_value_comes_back_as_the_same_object(redactor: Redactor) -> None:
    """The usual event costs no copy; counts of tokens, authors and sort keys are no secrets."""
    value = {
        "tool": "read_file",
        "input_tokens": 5,
        "tokens": "12",
        "author": "me",
        "sort_key": "x",
        "list": [{"a": None}],
    }
    assert redactor.value(value) is value


def test_hostile_structures_end() -> None:
    """A cycle, a depth beyond the stack and a structure that shares its parts do not hang."""
    loop: list[Any] = ["password=abcdefgh"]
    loop.append(loop)
    assert MARKER.fullmatch(SLOW.value(loop)[1])
    deep: Any = "password=abcdefgh"
    for _ in range(5000):
        deep = [deep]
    assert "abcdefgh" not in str(SLOW.value(deep))
    shared: Any = ["password=abcdefgh"]
    for _ in range(60):
        shared = [shared, shared]
    assert SLOW.value(shared)[0] is not shared[0]


def test_keys_that_become_equal_keep_both_entries() -> None:
    """A key already marked and the key it stands for may meet in one dict."""
    token = f"ghp_{mixed(36)}"
    mark = SLOW.text(token)
    assert SLOW.value({mark: 1, token: 2}) == {mark: 1, f"{mark}+": 2}
    assert SLOW.value({token: 2, mark: 1}) == {mark: 2, f"{mark}+": 1}


HOSTILE = {
    "letters": "a" * 1_000_000,
    "nul": "\0" * 300_000,
    "surrogates": "\ud800\udfff" * 100_000,
    "jwt heads": "eyJ-" * 60_000,
    "jwt parts": "eyJaaaaaaaa." * 20_000,
    "at signs": "a@" * 100_000,
    "key ids": "AKIA0123456789ABCDEF" * 10_000,
    "one long word": "dckr_pat_" * 30_000,
    "assignments": "password=" * 25_000,
    "open quotes": 'password:"' * 25_000,
    "backslashes": "password=" + "\\" * 200_000,
    "urls": "://" + "a:" * 100_000,
    "open keys": "-----BEGIN PRIVATE KEY-----" * 8_000,
    "digits": "4111 " * 50_000,
    "accounts": "DE89 " * 50_000,
    "marks": "password=[REDACTED:aws:abcdef]x" * 8_000,
    "lines": "token: x\n" * 20_000,
}


@BOTH
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_text_neither_hangs_nor_crashes(redactor: Redactor, name: str) -> None:
    """Quantifiers are bounded, so the worst a text can do is to be long; it is idempotent all the same."""
    once = redactor.text(HOSTILE[name])
    assert redactor.text(once) == once


def test_marks_of_all_rules_are_clean() -> None:
    """No name of a rule may itself look like a secret."""
    for name in [*SAMPLES, "known", "field", "line", "depth", "cycle"]:
        for text in (
            f"[REDACTED:{name}:abcdef]",
            f"x[REDACTED:{name}:012345]y",
            f"{{[REDACTED:{name}:4a5b6c]}}",
        ):
            assert SLOW.text(text) is text


def test_one_redactor_serves_many_threads() -> None:
    """Every thread gets the same answers while all use the same matcher."""
    redactor = make(known=KNOWN)
    expected = [redactor.text(text) for text, _ in SAMPLES.values()]
    answers: list[list[str]] = []

    def work() -> None:
        answers.extend([redactor.text(text) for text, _ in SAMPLES.values()] for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 160
    assert all(answer == expected for answer in answers)


def test_without_hyperscan_the_keywords_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional: nothing is said, nothing is missed."""
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    redactor = Redactor(key=KEY)
    assert not redactor.fast
    assert "s3cr3t" not in redactor.text(SAMPLES["url"][0])


def test_matcher_that_fails_leaves_the_text_to_the_keywords() -> None:
    """An error of the matcher, at compiling or at scanning, is not an open door."""

    class Broken:
        class HyperscanError(Exception):
            pass

    def fail(data: bytes, hits: list[int]) -> None:
        raise Broken.HyperscanError

    gate = FastGate(Broken, pii=True, warm_up=0)
    gate._scanners = (fail,)
    assert gate.mask(SAMPLES["github"][0]) == SLOW._gate.mask(SAMPLES["github"][0])
