"""Which hosts a list allows: names, suffixes, addresses; and which addresses a name may stand for."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.sandbox.hosts import HostRuleError, HostRules, Target, parse_target
from proctor.sandbox.http_head import BadRequestError, client_hello_name, parse_request

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=2, max_size=4).map(".".join)


@given(NAME, st.sampled_from([80, 443]))
def test_an_exact_name_allows_itself_and_nothing_else(name: str, port: int) -> None:
    """In any spelling, with or without the last dot; no neighbour, parent, child or other port."""
    rules = HostRules([name])
    for spelling in (name, name.upper(), f"{name}."):
        target = parse_target(f"{spelling}:{port}")
        assert target is not None
        assert rules.refusal(target) == ""
    for other in (f"x{name}", f"x.{name}", name.partition(".")[2], f"{name}.evil", f"{name}:8443"):
        wanted = parse_target(other, port)
        assert wanted is None or rules.refusal(wanted)


@given(NAME, LABEL)
def test_a_suffix_allows_what_is_below_it(name: str, label: str) -> None:
    """At any depth, and never the name itself or one that only ends alike."""
    rules = HostRules([f"*.{name}"])
    for host, allowed in (
        (f"{label}.{name}", True),
        (f"a.{label}.{name}", True),
        (name, False),
        (f"x{name}", False),
    ):
        assert (rules.refusal(Target(host, 443)) == "") is allowed


@pytest.mark.parametrize(
    "authority",
    [
        "127.1:80",
        "2130706433:80",
        "0x7f.0.0.1:80",
        "0x7f000001:80",
        "127.0.0.1.:80",
        "a b:80",
        "a@b:80",
        "a/b:80",
        "host:0",
        "host:65536",
        "host",
        "[::1",
        "::1:80",
        "[fe80::1%eth0]:80",
        "hø.st:80",
        "-a.b:80",
        "a..b:80",
        ":80",
    ],
)
def test_what_is_no_plain_host_is_not_understood(authority: str) -> None:
    """Numbers that the system's resolver takes for addresses are no names, and nothing is guessed."""
    assert parse_target(authority) is None


@pytest.mark.parametrize(
    "rule", ["*", "*.com", "*.1.2.3.4", "http://a.b", "a.b/c", "", "a b", "*.*.org", "a.b:x", "10.0.0.0/8"]
)
def test_a_rule_that_is_no_host_is_refused(rule: str) -> None:
    """A typing error must never open more than was meant."""
    with pytest.raises(HostRuleError):
        HostRules([rule])


def test_a_name_in_another_script_is_what_goes_over_the_wire() -> None:
    """The list is written by people, the request by programs."""
    assert HostRules(["bücher.example"]).refusal(Target("xn--bcher-kva.example", 443)) == ""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.9.9",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "ff02::1",
        "nonsense",
    ],
)
def test_a_name_never_leads_to_a_private_address(address: str) -> None:
    """Not through another notation and not through an address that carries one."""
    rules = HostRules(["good.example", "*.wild.example"])
    for host in ("good.example", "a.wild.example"):
        assert rules.address_refusal(Target(host, 443), address)


def test_a_private_address_passes_when_the_list_names_it() -> None:
    """An internal host is allowed by its name and its address together; `localhost` may be loopback."""
    rules = HostRules(["db.internal:5432", "10.0.0.5:5432", "localhost:8000"])
    assert rules.address_refusal(Target("db.internal", 5432), "10.0.0.5") == ""
    assert rules.address_refusal(Target("db.internal", 5432), "::ffff:10.0.0.5") == ""
    assert rules.address_refusal(Target("db.internal", 5432), "10.0.0.6")
    assert rules.address_refusal(Target("localhost", 8000), "127.0.0.1") == ""
    assert rules.address_refusal(Target("localhost", 8000), "10.0.0.1")


@given(st.ip_addresses())
def test_an_address_is_allowed_only_by_name(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """A list of names lets no address through, public or not."""
    target = Target(str(address), 443)
    assert HostRules(["good.example", "*.wild.example"]).refusal(target)
    shown = f"[{address}]" if address.version == 6 else str(address)
    assert HostRules([shown]).refusal(target) == ""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", 400),
        (b"GET https://a.b/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://a.b@evil.test/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://a.b/x y HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT a.b HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n", 400),
        (b"POST http://a.b/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST http://a.b/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST http://a.b/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST http://a.b/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 411),
        (b"POST http://a.b/ HTTP/1.1\r\nTransfer-Encoding: x\r\n\r\n", 411),
        (b"GET http://a.b/ HTTP/1.1\r\nX: a\nHost: evil\r\n\r\n", 400),
        (b"GET http://a.b/ HTTP/1.1\r\nX : a\r\n\r\n", 400),
        (b"GET http://a.b/ HTTP/1.1\r\n folded: a\r\n\r\n", 400),
        (b"GET http://a.b/ HTTP/2\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes, status: int) -> None:
    """Smuggling lives from readers that disagree; this one does not pass on what is not plain."""
    with pytest.raises(BadRequestError) as refused:
        parse_request(head)
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(noise: bytes) -> None:
    """Nothing else comes out of a head, whatever is sent."""
    with contextlib.suppress(BadRequestError):
        assert parse_request(noise + b"\r\n\r\n").target.host


def test_the_head_passed_on_names_the_host_that_was_checked() -> None:
    """Another Host header, hop-by-hop words and keep-alive do not survive."""
    request = parse_request(
        b"POST http://Good.Test:8080/p?q=1 HTTP/1.0\r\nhOST: evil\r\nConnection: keep-alive, x\r\nUpgrade: h2c\r\n"
        b"Proxy-Authorization: s\r\nContent-Length: 3\r\nX-Kept: yes\r\n\r\n"
    )
    assert (request.target, request.body) == (Target("good.test", 8080), 3)
    assert request.head == (
        b"POST /p?q=1 HTTP/1.1\r\nHost: good.test:8080\r\nConnection: close\r\nContent-Length: 3\r\nX-Kept: yes\r\n\r\n"
    )


@given(st.binary(max_size=200))
def test_any_first_message_gives_a_name_none_or_a_refusal(noise: bytes) -> None:
    """A broken ClientHello is no reason to fall over."""
    with contextlib.suppress(ValueError):
        name = client_hello_name(noise)
        assert name is None or name == name.lower()


def real_hello(name: str | None) -> bytes:
    """What Python's own TLS sends first, without its record."""
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()[5:]


def test_the_server_name_of_a_real_client_hello_is_found() -> None:
    """With a name, without one, and never a guess when it is cut short."""
    assert client_hello_name(real_hello("Files.Example.org")) == "files.example.org"
    assert client_hello_name(real_hello(None)) is None
    with pytest.raises(ValueError, match="cut short"):
        client_hello_name(real_hello("files.example.org")[:90])
