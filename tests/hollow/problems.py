"""Small functions with a defect, in three languages: broken, half mended, mended, and rewritten without a change.

Each has calls that are right before and after (`fine`) and calls that only the mended one gets right (`wrong`); `half`
gets the first of those right and not the second.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROBLEMS", "Problem"]

Calls = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One function; bodies are whole files, calls are expressions with the literal they must give."""

    language: str
    name: str
    broken: str
    half: str
    mended: str
    rewritten: str
    fine: Calls
    wrong: Calls


def _python(
    name: str, head: str, broken: str, half: str, mended: str, rewritten: str, fine: Calls, wrong: Calls
) -> Problem:
    def whole(body: str) -> str:
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        return f'"""Numbers and words."""\n\n\ndef {head}:\n    """Give the answer."""\n{lines}'

    return Problem("python", name, whole(broken), whole(half), whole(mended), whole(rewritten), fine, wrong)


def _script(
    name: str, head: str, broken: str, half: str, mended: str, rewritten: str, fine: Calls, wrong: Calls
) -> Problem:
    def whole(body: str) -> str:
        lines = "".join(f"  {line}\n" for line in body.split("\n"))
        return f"'use strict';\n\nfunction {head} {{\n{lines}}}\n\nmodule.exports = {{ {name} }};\n"

    return Problem(
        "javascript", name, whole(broken), whole(half), whole(mended), whole(rewritten), fine, wrong
    )


def _shell(
    name: str, broken: str, half: str, mended: str, rewritten: str, fine: Calls, wrong: Calls
) -> Problem:
    def whole(body: str) -> str:
        lines = "".join(f"  {line}\n" for line in body.split("\n"))
        return f'#!/bin/bash\n# Gives the answer for its arguments.\n{name}() {{\n{lines}}}\n{name} "$@"\n'

    return Problem("shell", name, whole(broken), whole(half), whole(mended), whole(rewritten), fine, wrong)


PROBLEMS: tuple[Problem, ...] = (
    _python(
        "clamp", "clamp(x, low, high)",
        "return min(x, high)", "return max(abs(low), min(x, high))", "return max(low, min(x, high))",
        "if x < low:\n    return low\nif x > high:\n    return high\nreturn x",
        (("clamp(5, 0, 10)", "5"), ("clamp(30, 1, 9)", "9")), (("clamp(-4, 0, 10)", "0"), ("clamp(-9, -2, 99)", "-2")),
    ),
    _python(
        "initials", "initials(text)",
        'return "".join(word[0] for word in text.split(" "))', 'return "".join(word[0] for word in text.split())',
        'return "".join(word[0] for word in text.split()).upper()',
        'letters = [word[0].upper() for word in text.split()]\nreturn "".join(letters)',
        (("initials('Ada Lovelace')", "'AL'"),), (("initials('Ada  King')", "'AK'"), ("initials('ada king')", "'AK'")),
    ),
    _python(
        "median", "median(values)",
        "return list(values)[len(values) // 2]",
        "values = sorted(values)\nhalf = len(values) // 2\nreturn values[half] if len(values) % 2 else values[half - 1]",
        "values = sorted(values)\nhalf = len(values) // 2\n"
        "return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2",
        "ordered = sorted(values)\nhalf, odd = divmod(len(ordered), 2)\nif odd:\n    return ordered[half]\n"
        "return sum(ordered[half - 1:half + 1]) / 2",
        (("median([1, 2, 3])", "2"),), (("median([4, 9, 1])", "4"), ("median([1, 2, 3, 4])", "2.5")),
    ),
    _python(
        "leap", "leap(year)",
        "return year % 4 == 0", "return year % 4 == 0 and year % 100 != 0",
        "return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        "if year % 400 == 0:\n    return True\nif year % 100 == 0:\n    return False\nreturn year % 4 == 0",
        (("leap(2024)", "True"), ("leap(2023)", "False")),
        (("leap(1900)", "False"), ("leap(2100) or not leap(2000)", "False")),
    ),
    _python(
        "chunks", "chunks(items, size)",
        "return [items[i:i + size] for i in range(0, len(items) - size + 1, size)]",
        "return [items[i:i + size] for i in range(0, len(items), size)][:2]",
        "return [items[i:i + size] for i in range(0, len(items), size)]",
        "found = []\nwhile items:\n    found.append(items[:size])\n    items = items[size:]\nreturn found",
        (("chunks([1, 2, 3, 4], 2)", "[[1, 2], [3, 4]]"),),
        (("chunks([1, 2, 3], 2)", "[[1, 2], [3]]"), ("chunks([1, 2, 3, 4, 5], 2)", "[[1, 2], [3, 4], [5]]")),
    ),
    _python(
        "unique", "unique(items)",
        "return sorted(set(items))", "return list(dict.fromkeys(items[:3]))", "return list(dict.fromkeys(items))",
        "seen = []\nfor item in items:\n    if item not in seen:\n        seen.append(item)\nreturn seen",
        (("unique([1, 2, 2])", "[1, 2]"),), (("unique([3, 1, 3])", "[3, 1]"), ("unique([9, 7, 9, 8])", "[9, 7, 8]")),
    ),
    _python(
        "plural", "plural(count, word)",
        'return f"{count} {word}s"', 'return f"{count} {word}" + ("" if count == 1 else "s")',
        'ending = "" if abs(count) == 1 else "s"\nreturn f"{count} {word}{ending}"',
        'if abs(count) == 1:\n    return f"{count} {word}"\nreturn f"{count} {word}s"',
        (("plural(2, 'cat')", "'2 cats'"),), (("plural(1, 'cat')", "'1 cat'"), ("plural(-1, 'cat')", "'-1 cat'")),
    ),
    _python(
        "total", "total(prices)",
        "return sum(price for price in prices if price > 0)", "return sum(price for price in prices if price > -3)",
        "return sum(prices)", "result = 0\nfor price in prices:\n    result += price\nreturn result",
        (("total([1, 2])", "3"), ("total([])", "0")), (("total([5, -2])", "3"), ("total([5, -4])", "1")),
    ),
    _script(
        "capitalize", "capitalize(text)",
        "return text[0].toUpperCase() + text.slice(1);", "return text ? text[0].toUpperCase() + text.slice(1) : '';",
        "return text ? text[0].toUpperCase() + text.slice(1).toLowerCase() : '';",
        "const rest = text.slice(1).toLowerCase();\nreturn text.charAt(0).toUpperCase() + rest;",
        (("capitalize('abc')", "'Abc'"),), (("capitalize('')", "''"), ("capitalize('aBC')", "'Abc'")),
    ),
    _script(
        "sum", "sum(list)",
        "let total = 0;\nfor (let i = 1; i < list.length; i++) total += list[i];\nreturn total;",
        "let total = 0;\nfor (let i = 0; i < Math.min(2, list.length); i++) total += list[i];\nreturn total;",
        "let total = 0;\nfor (let i = 0; i < list.length; i++) total += list[i];\nreturn total;",
        "return list.reduce((total, each) => total + each, 0);",
        (("sum([0, 2])", "2"), ("sum([])", "0")), (("sum([3, 2])", "5"), ("sum([1, 2, 3])", "6")),
    ),
    _script(
        "parity", "parity(n)",
        "return n % 2 === 1 ? 'odd' : 'even';", "return n % 2 === 1 || n === -3 ? 'odd' : 'even';",
        "return n % 2 !== 0 ? 'odd' : 'even';", "if (Math.abs(n) % 2 === 1) {\n  return 'odd';\n}\nreturn 'even';",
        (("parity(3)", "'odd'"), ("parity(4)", "'even'")), (("parity(-3)", "'odd'"), ("parity(-5)", "'odd'")),
    ),
    _script(
        "last", "last(list, count)",
        "return list.slice(-count);", "return count === 0 ? [] : list.slice(-count);",
        "return count > 0 ? list.slice(-count) : [];",
        "if (count <= 0) {\n  return [];\n}\nreturn list.slice(list.length - Math.min(count, list.length));",
        (("last([1, 2, 3], 2)", "[2, 3]"),), (("last([1, 2], 0)", "[]"), ("last([1, 2], -1)", "[]")),
    ),
    _script(
        "slug", "slug(text)",
        "return text.toLowerCase().replace(' ', '-');", "return text.toLowerCase().replaceAll(' ', '-');",
        "return text.trim().toLowerCase().replaceAll(' ', '-');",
        "const words = text.trim().split(' ');\nreturn words.join('-').toLowerCase();",
        (("slug('A b')", "'a-b'"),), (("slug('A b c')", "'a-b-c'"), ("slug(' A b ')", "'a-b'")),
    ),
    _script(
        "mean", "mean(list)",
        "return list.reduce((a, b) => a + b, 0) / (list.length - 1);",
        "return list.reduce((a, b) => a + b, 0) / list.length;",
        "return list.length ? list.reduce((a, b) => a + b, 0) / list.length : 0;",
        "if (list.length === 0) {\n  return 0;\n}\nlet total = 0;\n"
        "for (const each of list) {\n  total += each;\n}\nreturn total / list.length;",
        (("mean([0, 0])", "0"),), (("mean([2, 4])", "3"), ("mean([])", "0")),
    ),
    _shell(
        "greet", 'echo "Hello $1"', 'echo "Hello ${1:-world}"', 'echo "Hello ${1:-world}!"',
        'local name="${1:-world}"\nprintf "Hello %s!\\n" "$name"',
        (("greet Ann | cut -c1-9", "Hello Ann"),), (("greet | cut -c1-11", "Hello world"), ("greet Bob", "Hello Bob!")),
    ),
    _shell(
        "add", "echo $(( $1 + $1 ))", "echo $(( $1 + ${2:-0} ))",
        "local n=0 each\nfor each in \"$@\"; do n=$(( n + each )); done\necho $n",
        "local n=0\nwhile [ $# -gt 0 ]; do\n  n=$(( n + $1 ))\n  shift\ndone\necho \"$n\"",
        (("add 2 2", "4"),), (("add 2 3", "5"), ("add 1 2 3", "6")),
    ),
    _shell(
        "extension", 'echo "${1#*.}"', 'echo "${1##*.}"', 'case "$1" in *.*) echo "${1##*.}";; *) echo none;; esac',
        'if [[ "$1" == *.* ]]; then\n  echo "${1##*.}"\nelse\n  echo none\nfi',
        (("extension a.txt", "txt"),), (("extension a.tar.gz", "gz"), ("extension plain", "none")),
    ),
    _shell(
        "lines", "wc -l | tr -d ' ' | tr 19 ..", "grep -c '' | sed s/9/nine/", "grep -c '' || true",
        "awk 'END { print NR }'",
        (("printf 'a\\nb\\n' | lines", "2"),), (("printf 'a\\n' | lines", "1"), ("seq 9 | lines", "9")),
    ),
    _shell(
        "biggest", 'echo "$@" | tr " " "\\n" | sort | tail -1',
        'echo "$@" | tr " " "\\n" | sort -n | tail -1 | head -c 2; echo',
        'printf "%s\\n" "$@" | sort -n | tail -1',
        'local best=$1 each\nfor each in "$@"; do\n  if [ "$each" -gt "$best" ]; then best=$each; fi\ndone\necho "$best"',
        (("biggest 1 2 3", "3"),), (("biggest 9 10", "10"), ("biggest 200 30", "200")),
    ),
)  # fmt: skip
