"""Network by host: one proxy, no other road, and every host told. Real servers on loopback, a resolver of our own."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import probe
from proctor.sandbox.run import run
from proctor.sandbox.spec import Level, LevelUnavailableError, Network, Result, Spec, SpecError
from proctor.testing.permits import permit_for_tests
from tests.sandbox.conftest import need
from tests.support.requirements import require

Make = Callable[..., Spec]
Go = Callable[..., Any]
ASK = """
import os, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        print(answer.status, answer.read().decode())
except Exception as error:
    print(type(error).__name__, error, getattr(error, "read", bytes)().decode())
"""
RAW = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", 17813), 5)
s.settimeout(5)
s.sendall(sys.argv[1].encode("latin-1").decode("unicode_escape").encode("latin-1"))
try:
    while data := s.recv(4096):
        print(data.decode("latin-1"))
except OSError as error:
    print("CLOSED", error)
"""


class Server(ThreadingHTTPServer):
    """A host of the outside world: answers with its name and remembers what it heard."""

    daemon_threads = True

    def __init__(self) -> None:
        self.heard: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)
        self.port = int(self.server_address[1])


class Answer(BaseHTTPRequestHandler):
    """Says who it is."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer, and keep the connection open for more."""
        self.server.heard.append(f"{self.command} {self.path} {self.headers['Host']}")
        body = f"hello from {self.server.port}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """The same."""
        self.do_GET()

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """One that is allowed."""
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.02,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture
def go(spec: Make) -> Go:
    """Run a Python program with a list of hosts; names are resolved by a table."""
    need(Level.BWRAP)
    require(not probe.by_host(), f"network by host: {probe.by_host()}", "Allow user namespaces.")

    async def start(
        code: str, *words: str, hosts: tuple[str, ...], names: dict[str, list[str]], **more: Any
    ) -> Result:
        import sys

        async def resolve(host: str, _port: int) -> list[str]:
            if host not in names:
                raise socket.gaierror(socket.EAI_NONAME, "unknown")
            return names[host]

        argv = (sys.executable, "-I", "-S", "-c", code, *words)
        wanted = spec(argv, None, network=Network.HOSTS, hosts=hosts, **more)
        return await run(wanted, permit=permit_for_tests(), resolve=resolve)

    return start


def listed(server: Server) -> tuple[str, ...]:
    """A name and, because it lies on loopback here, its address."""
    return (f"good.test:{server.port}", f"127.0.0.1:{server.port}")


LOCAL = {"good.test": ["127.0.0.1"], "evil.test": ["127.0.0.1"]}


def wishes(result: Result) -> list[tuple[str, bool]]:
    """Which hosts were wanted, and whether they were allowed."""
    return [(reach.host, reach.allowed) for reach in result.sandbox.reached]


async def test_an_allowed_host_is_reached_through_the_proxy(go: Go, server: Server) -> None:
    """Programs find the proxy by themselves, and the result tells whom they reached."""
    result = await go(ASK, f"http://good.test:{server.port}/x", hosts=listed(server), names=LOCAL)
    assert result.stdout.text == f"200 hello from {server.port}\n"
    assert wishes(result) == [(f"good.test:{server.port}", True)]
    assert (result.sandbox.net, result.sandbox.level) == (Network.HOSTS, Level.BWRAP)
    assert server.heard == [f"GET /x good.test:{server.port}"]


async def test_another_host_is_refused_and_told(go: Go, server: Server) -> None:
    """The client hears why, the result names it, the server never hears of it."""
    result = await go(ASK, f"http://evil.test:{server.port}/", hosts=listed(server), names=LOCAL)
    assert "403" in result.stdout.text
    assert f"Proctor refused evil.test:{server.port}: the host is not in the list" in result.stdout.text
    assert wishes(result) == [(f"evil.test:{server.port}", False)]
    assert result.sandbox.refused == (f"evil.test:{server.port} (the host is not in the list)",)
    assert server.heard == []


async def test_there_is_no_road_beside_the_proxy(go: Go, server: Server) -> None:
    """Direct TCP, UDP, raw packets, names and netlink all end inside the command's own network."""
    code = f"""
import socket
def attempt(what, act):
    try:
        act(); print(what, "GOT OUT")
    except OSError as error:
        print(what, type(error).__name__)
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {server.port}), 2))
attempt("tcp6", lambda: socket.create_connection(("::1", {server.port}), 2))
attempt("far", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("udp", lambda: socket.socket(2, 2).sendto(b"x", ("192.0.2.1", 53)))
attempt("raw", lambda: socket.socket(2, 3, 1))
attempt("packet", lambda: socket.socket(17, 3, 3))
attempt("name", lambda: socket.getaddrinfo("good.test", 80))
print(socket.if_nameindex())
"""
    result = await go(code, hosts=listed(server), names=LOCAL)
    assert "GOT OUT" not in result.stdout.text
    assert "[(1, 'lo')]" in result.stdout.text
    assert server.heard == []


async def test_an_address_is_refused_unless_the_list_names_it(go: Go, server: Server) -> None:
    """CONNECT to an IP would go around every name; other notations of one are not understood at all."""
    for authority in (f"127.0.0.1:{server.port}", f"[::1]:{server.port}"):
        result = await go(RAW, f"CONNECT {authority} HTTP/1.1\\r\\n\\r\\n", hosts=("good.test",), names=LOCAL)
        assert "403" in result.stdout.text
        assert "addresses are refused" in result.stdout.text
        assert wishes(result) == [(authority, False)]
    result = await go(
        RAW, f"CONNECT 2130706433:{server.port} HTTP/1.1\\r\\n\\r\\n", hosts=("good.test",), names=LOCAL
    )
    assert " 400 " in result.stdout.text
    assert server.heard == []


async def test_a_name_that_leads_inside_is_refused(go: Go, server: Server) -> None:
    """An allowed name whose owner points it at the host's own services gains nothing."""
    hosts = (f"good.test:{server.port}",)
    result = await go(ASK, f"http://good.test:{server.port}/", hosts=hosts, names=LOCAL)
    assert "403" in result.stdout.text
    assert "not a public address" in result.sandbox.refused[0]
    assert server.heard == []


async def test_a_name_is_asked_once_and_its_checked_address_is_used(spec: Make, server: Server) -> None:
    """Rebinding: the second answer of a hostile resolver is never heard."""
    need(Level.BWRAP)
    import sys

    asked: list[str] = []

    async def hostile(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    url = f"http://good.test:{server.port}/"
    wanted = spec(
        (sys.executable, "-I", "-S", "-c", ASK, url), None, network=Network.HOSTS, hosts=listed(server)
    )
    result = await run(wanted, permit=permit_for_tests(), resolve=hostile)
    assert "200 hello" in result.stdout.text
    assert asked == ["good.test"]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("GET http://good.test:{p}/ HTTP/1.1\\r\\nX: a\\nHost: evil\\r\\n\\r\\n", " 400 "),
        (
            "POST http://good.test:{p}/ HTTP/1.1\\r\\nContent-Length: 0\\r\\nContent-Length: 40\\r\\n\\r\\n",
            " 400 ",
        ),
        (
            "POST http://good.test:{p}/ HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
            " 411 ",
        ),
        ("GET http://evil.test@good.test:{p}/ HTTP/1.1\\r\\n\\r\\n", " 400 "),
        ("GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n", " 400 "),
    ],
)
async def test_a_smuggled_request_is_refused(go: Go, server: Server, sent: str, answer: str) -> None:
    """What two readers would understand differently is passed on by none."""
    result = await go(RAW, sent.format(p=server.port), hosts=listed(server), names=LOCAL)
    assert answer in result.stdout.text
    assert server.heard == []


async def test_one_request_a_connection_and_only_to_the_checked_host(go: Go, server: Server) -> None:
    """A second request hidden behind the first, and another Host header, do not reach the server."""
    first = "GET http://good.test:{p}/1 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"
    second = "GET http://good.test:{p}/2 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"
    result = await go(RAW, (first + second).format(p=server.port), hosts=listed(server), names=LOCAL)
    assert "hello from" in result.stdout.text
    assert server.heard == [f"GET /1 good.test:{server.port}"]


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """A TLS server with a certificate of its own; gives its port and the names it was asked for."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=good.test",
        "-keyout",
    ]
    made = subprocess.run([*words, str(key), "-out", str(cert)], capture_output=True, check=False)
    require(made.returncode == 0, "openssl cannot make a certificate", "Install openssl.")
    asked: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.sni_callback = lambda _socket, name, _context: asked.append(name or "")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(client, server_side=True) as secured:
                    secured.sendall(b"secret hello")
            except OSError:
                client.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield int(listener.getsockname()[1]), asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


TLS = """
import socket, ssl, sys
s = socket.create_connection(("127.0.0.1", 17813), 5)
s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
print(s.recv(4096).decode())
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
try:
    print(context.wrap_socket(s, server_hostname=sys.argv[2] or None).recv(100))
except OSError as error:
    print("CUT", type(error).__name__)
"""


async def test_a_tunnel_reaches_the_host_it_names(go: Go, tls: tuple[int, list[str]]) -> None:
    """CONNECT passes TLS through untouched."""
    port, asked = tls
    hosts = (f"good.test:{port}", f"127.0.0.1:{port}")
    result = await go(TLS, f"good.test:{port}", "good.test", hosts=hosts, names=LOCAL)
    assert "b'secret hello'" in result.stdout.text
    assert asked == ["good.test"]
    assert wishes(result) == [(f"good.test:{port}", True)]


async def test_a_tunnel_cannot_ask_for_a_neighbour(go: Go, tls: tuple[int, list[str]]) -> None:
    """Behind one address many hosts live: the name inside TLS must be the one that was allowed."""
    port, asked = tls
    hosts = (f"good.test:{port}", f"127.0.0.1:{port}")
    result = await go(TLS, f"good.test:{port}", "evil.test", hosts=hosts, names=LOCAL)
    assert "CUT" in result.stdout.text
    assert asked == []
    assert "TLS inside asks for evil.test" in result.sandbox.refused[0]


SPLIT = """
import socket, ssl, struct, sys
s = socket.create_connection(("127.0.0.1", 17813), 5)
s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode()); s.recv(4096)
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(inside, outside, server_hostname=sys.argv[2])
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    hello = outside.read()
for at in range(5, len(hello), 20):
    piece = hello[at : at + 20]
    s.sendall(hello[:3] + struct.pack("!H", len(piece)) + piece)
s.settimeout(5)
try:
    print("ANSWERED" if s.recv(10) else "CUT")
except OSError as error:
    print("CUT")
"""


@pytest.mark.parametrize(("asked_for", "answer"), [("good.test", "ANSWERED\n"), ("evil.test", "CUT\n")])
async def test_a_hello_in_pieces_hides_nothing(
    go: Go, tls: tuple[int, list[str]], asked_for: str, answer: str
) -> None:
    """A first message spread over many records is put together before it is believed, and passed on as it came."""
    port, _asked = tls
    hosts = (f"good.test:{port}", f"127.0.0.1:{port}")
    result = await go(SPLIT, f"good.test:{port}", asked_for, hosts=hosts, names=LOCAL)
    assert result.stdout.text == answer


async def test_the_command_is_told_of_the_proxy_and_keeps_its_own_loopback(go: Go) -> None:
    """All usual variables are set, and servers of the command's own are reached without it."""
    code = """
import os, socket
names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
print({os.environ[name] for name in names}, os.environ["NO_PROXY"])
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname(), 2); print("INSIDE")
"""
    result = await go(code, hosts=("good.test",), names=LOCAL, extra={"HTTPS_PROXY": "http://evil.test"})
    assert result.stdout.text == "{'http://127.0.0.1:17813'} localhost,127.0.0.1,::1\nINSIDE\n"


async def test_connections_end_with_the_command(go: Go, server: Server) -> None:
    """A client that never ends its request holds nobody: time-out, result, no task left."""
    code = """
import socket, time
held = [socket.create_connection(("127.0.0.1", 17813), 5) for _ in range(20)]
for s in held: s.sendall(b"GET http://good.test")
time.sleep(30)
"""
    result = await go(code, hosts=listed(server), names=LOCAL, limits={"seconds": 0.7, "grace": 0.2})
    assert result.timed_out
    assert [task for task in asyncio.all_tasks() if "HostProxy" in repr(task)] == []


async def test_more_hosts_than_can_be_told_are_counted(go: Go) -> None:
    """A command that tries a thousand names does not fill the result with them."""
    code = """
import socket
for n in range(130):
    s = socket.create_connection(("127.0.0.1", 17813), 5)
    s.sendall(f"CONNECT h{n}.evil.test:443 HTTP/1.1\\r\\n\\r\\n".encode()); s.recv(4096); s.close()
"""
    result = await go(code, hosts=("good.test",), names=LOCAL)
    assert len(result.sandbox.reached) == 101
    assert (result.sandbox.reached[-1].host, result.sandbox.reached[-1].count) == ("others", 30)


@pytest.mark.parametrize("low", [Level.LANDLOCK, Level.LIMITS])
async def test_below_level_three_a_list_of_hosts_is_refused(spec: Make, place: Path, low: Level) -> None:
    """Fail closed: never the whole network instead of some hosts."""
    need(low)
    wanted = spec("touch ran", low, network=Network.HOSTS, hosts=("good.test",))
    with pytest.raises(LevelUnavailableError, match="needs level 3"):
        await run(wanted, permit=permit_for_tests())
    assert not (place / "ws" / "ran").exists()


async def test_below_level_three_the_network_is_off_where_that_is_enough(py: Go) -> None:
    """Who only may use hosts runs on without any, and the result says so."""
    need(Level.LANDLOCK)
    more = {"network": Network.HOSTS, "hosts": ("good.test",), "hosts_optional": True}
    code = "import os, socket\nprint('HTTP_PROXY' in os.environ)\nsocket.socket()"
    result = await py(code, Level.LANDLOCK, **more)
    assert (result.stdout.text, result.sandbox.net) == ("False\n", Network.OFF)
    assert "PermissionError" in result.stderr.text
    assert any("network by host cannot be had" in line for line in result.sandbox.missing)


async def test_a_machine_without_its_own_networks_refuses(
    spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bwrap alone does not give the proxy a door; without network the command still runs, in bwrap's own namespace."""
    need(Level.BWRAP)
    monkeypatch.setattr(probe, "apart", lambda: "unshare: not permitted")
    with pytest.raises(LevelUnavailableError, match="not permitted"):
        await run(spec("true", network=Network.HOSTS, hosts=("good.test",)), permit=permit_for_tests())
    result = await run(spec("cat /proc/net/dev"), permit=permit_for_tests())
    interfaces = [line.split(":")[0].strip() for line in result.stdout.text.splitlines()[2:]]
    assert interfaces == ["lo"]
    admitted = any("modes of the host's devices" in line for line in result.sandbox.missing)
    assert admitted == (os.geteuid() == 0)


def test_hosts_and_network_must_fit() -> None:
    """A list without its network, or the network without its list, is a mistake and told at once."""
    for more in (
        {"hosts": ("a.test",)},
        {"network": Network.HOSTS},
        {"network": Network.FULL, "hosts": ("a.test",)},
    ):
        with pytest.raises(SpecError):
            Spec(("true",), "/", **more)
