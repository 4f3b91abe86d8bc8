"""A tool is declared once, found by every name, and refused when the gate could not judge it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError
from proctor.protocol.tools import Reads, SideEffect, Tool
from proctor.tools.registry import InvalidInputError, Registry, ToolDeclarationError, declare


class ReadIn(BaseModel):
    """A path."""

    model_config = ConfigDict(extra="forbid")

    path: str
    cap: int = 10


class ReadOut(BaseModel):
    """What was there."""

    text: str


async def _read(context: Context, wanted: ReadIn) -> ReadOut:
    return ReadOut(text=wanted.path)


def _tool(name: str = "read_file", *aliases: str, domain: str = "filesystem", touching: bool = True) -> Tool:
    return declare(
        name=name,
        summary="Read a file.",
        input=ReadIn,
        output=ReadOut,
        domain=domain,
        side_effect=SideEffect.READ_ONLY,
        handler=_read,
        aliases=aliases,
        touches=(lambda wanted: (Reads(wanted.path),)) if touching else None,
    )


def test_tool_is_found_by_name_and_alias() -> None:
    """Every name leads to the same declaration."""
    registry = Registry([_tool("read_file", "cat", "file_read")])
    assert registry.find("cat") is registry.find("read_file") is registry.find("file_read")
    assert "cat" in registry
    assert len(registry) == 1
    assert registry.tools() == [registry.find("cat")]


def test_unknown_tool_is_refused_with_the_nearest_names() -> None:
    """A typing mistake gets its cure."""
    with pytest.raises(NotFoundError, match="Did you mean read_file"):
        Registry([_tool()]).find("read_fil")


@pytest.mark.parametrize("second", [_tool("read_file"), _tool("other", "read_file"), _tool("cat")])
def test_taken_names_are_refused(second: Tool) -> None:
    """Neither a name nor an alias may be given twice."""
    registry = Registry([_tool("read_file", "cat")])
    with pytest.raises(ToolDeclarationError, match="is taken by 'read_file'"):
        registry.add(second)
    assert len(registry) == 1


@pytest.mark.parametrize(
    "wrong", [_tool("Read"), _tool("a b"), _tool(touching=False), _tool(domain=""), _tool("x", "")]
)
def test_what_the_gate_could_not_judge_is_refused(wrong: Tool) -> None:
    """A tool that reaches files must say which; names are plain."""
    with pytest.raises(ToolDeclarationError):
        Registry([wrong])


@pytest.mark.parametrize("name", ["path", "file_path", "dir_path"])
def test_parameters_of_the_seeds_are_taken(name: str) -> None:
    """path = file_path = dir_path."""
    registry = Registry([_tool()])
    assert registry.parse(registry.find("read_file"), {name: "a.txt"}) == ReadIn(path="a.txt")


def test_parameter_given_twice_and_differently_is_refused() -> None:
    """Two names for one parameter must not hide which was meant."""
    registry = Registry([_tool()])
    tool = registry.find("read_file")
    assert registry.parse(tool, {"path": "a", "file_path": "a"}) == ReadIn(path="a")
    with pytest.raises(InvalidInputError, match="given twice"):
        registry.parse(tool, {"path": "a", "file_path": "b"})


def test_wrong_inputs_are_named_without_their_values() -> None:
    """A wrong value may be a secret, so only its place and the reason are told."""
    registry = Registry([_tool()])
    with pytest.raises(InvalidInputError) as caught:
        registry.parse(registry.find("read_file"), {"path": "a", "cap": "sk-very-secret", "what": 1})
    assert "cap" in str(caught.value)
    assert "what" in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_schema_describes_inputs_and_outputs() -> None:
    """Models, MCP and REST read the same description."""
    (schema,) = Registry([_tool("read_file", "cat")]).schemas()
    assert schema["name"] == "read_file"
    assert schema["aliases"] == ["cat"]
    assert schema["input_schema"]["required"] == ["path"]
    assert schema["output_schema"]["properties"]["text"]["type"] == "string"
    assert (schema["side_effect"], schema["adapters"]) == ("read-only", ["real"])
