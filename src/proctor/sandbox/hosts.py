"""Which hosts a command may reach: names, suffixes and addresses, and which addresses a name may stand for. Pure.

Invariants: what is not understood is refused; an address passes only when it is written in the list itself; a name never
leads to a private, loopback or link-local address unless that address (or `localhost`) is in the list too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from proctor.protocol.errors import UsageError

__all__ = ["HostRuleError", "HostRules", "Target", "check_hosts", "parse_target"]

WEB_PORTS: Final = (80, 443)
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_AUTHORITY: Final = re.compile(r"(?:\[([0-9a-fA-F:.]{2,64})\]|([^\[\]:/@?#\s]{1,255}))(?::([0-9]{1,5}))?")
_LOCAL: Final = "localhost"
# Addresses that carry another inside: what they lead to cannot be told from here.
_CARRIERS: Final = tuple(
    ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostRuleError(UsageError):
    """{rule!r} is no host. Write a name (`example.org`), a suffix (`*.example.org`) or an address, with a port when it is
    neither 80 nor 443.
    """

    code = "host_rule"


@dataclass(frozen=True, slots=True)
class Target:
    """A host and a port somebody wants to reach: the name in small letters, or an address in its one spelling."""

    host: str
    port: int

    @property
    def address(self) -> Address | None:
        """The host as an address, when it is one."""
        return _address(self.host)

    @property
    def shown(self) -> str:
        """As it is written in an address line."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(authority: str, default_port: int | None = None) -> Target | None:
    """Read `host:port`; None when it is anything else than a plain name or address."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    bracketed, plain, digits = found.groups()
    port = int(digits) if digits else default_port
    host = _host(bracketed or plain, bracketed=bracketed is not None)
    return Target(host, port) if host is not None and port is not None and 0 < port < 65536 else None


def _host(text: str, *, bracketed: bool) -> str | None:
    address = _address(text)
    if bracketed or isinstance(address, ipaddress.IPv6Address):
        return str(address) if bracketed and isinstance(address, ipaddress.IPv6Address) else None
    if address is not None:
        return str(address)
    name = text.lower().removesuffix(".")
    # A name whose end is a number (`127.1`, `2130706433`, `0x7f.0.0.1`) is an address to the system's resolver.
    return name if _NAME.fullmatch(name) and not _NUMBER.fullmatch(name.rpartition(".")[2]) else None


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class HostRules:
    """The list, read once."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        for rule in rules:
            self._add(rule)

    def _add(self, rule: str) -> None:
        suffix, plain = rule.startswith("*."), _ascii(rule.removeprefix("*."))
        explicit = parse_target(plain)
        target = explicit or parse_target(plain, WEB_PORTS[0])
        if target is None or (suffix and (target.address is not None or "." not in target.host)):
            raise HostRuleError(rule=rule[:200])
        ports = (target.port,) if explicit is not None else WEB_PORTS
        (self._below if suffix else self._exact).update((target.host, port) for port in ports)

    def refusal(self, target: Target) -> str:
        """Why a host may not be reached; "" when it may."""
        if (target.host, target.port) in self._exact:
            return ""
        if target.address is not None:
            return "addresses are refused unless the list names them"
        labels = target.host.split(".")
        above = (".".join(labels[place:]) for place in range(1, len(labels)))
        if any((suffix, target.port) in self._below for suffix in above):
            return ""
        hosts = {host for host, _ in self._exact}
        return "the port is not in the list" if target.host in hosts else "the host is not in the list"

    def covers(self, rule: str) -> bool:
        """Whether everything another rule allows is allowed here too."""
        other = HostRules([rule])
        exact = all(not self.refusal(Target(host, port)) for host, port in other._exact)
        return exact and all(self._covers_suffix(suffix, port) for suffix, port in other._below)

    def _covers_suffix(self, suffix: str, port: int) -> bool:
        labels = suffix.split(".")
        return any((".".join(labels[place:]), port) in self._below for place in range(len(labels)))

    def address_refusal(self, target: Target, address: str) -> str:
        """Why a resolved address may not be connected to; "" when it may."""
        found = _address(address.partition("%")[0])
        if found is None:
            return "the resolver gave no address"
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if (str(found), target.port) in self._exact:
            return ""
        if found.is_loopback and target.host == _LOCAL:
            return ""
        if _public(found):
            return ""
        return f"the name leads to {found}, which is not a public address"


def _public(address: Address) -> bool:
    special = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    carried = any(address in network for network in _CARRIERS if network.version == address.version)
    return address.is_global and not special and not carried


def _ascii(rule: str) -> str:
    """A name in another script becomes what goes over the wire."""
    if rule.isascii():
        return rule
    try:
        return rule.encode("idna").decode("ascii")
    except UnicodeError:
        raise HostRuleError(rule=rule[:200]) from None


def check_hosts(rules: Iterable[str]) -> None:
    """Refuse a list with something that is no host."""
    HostRules(rules)
