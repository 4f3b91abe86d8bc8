"""The phrases the lint of task files knows: vague words, concrete ones, steps, expectations, severities, placeholders."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ARCHITECTURE", "COMMON", "CONCRETE", "EXPECTED", "GOAL", "GRAVE", "LAZY_CHECK", "PLACEHOLDER", "REFACTOR", "STEPS",
    "TRIFLES", "VAGUE",
]  # fmt: skip


def _any(*texts: str, more: str = "") -> re.Pattern[str]:
    """A pattern for any of the phrases, given in lines of alternatives with a bar between them."""
    phrases = "|".join(text.strip("|") for text in texts)
    return re.compile(rf"\b(?:{phrases})\b{'|' + more if more else ''}", re.IGNORECASE)


VAGUE: Final = _any(
    r"messy|ugly|bad|wrong|broken|not good|clean (?:it |this |things )?up|tidy|improve|better|nicer|optimi[sz]e|enhance",
    r"fix (?:it|this|the (?:bug|issue|problem|code))|make (?:it|this) work|stuff|things?|various|somehow|etc|as needed",
    r"if necessary|appropriately|properly|handle (?:errors?|it|edge cases)|update (?:the )?code|needs? work|review",
)
#: Something one can look for: code words, paths, numbers, quoted text, words of programming.
CONCRETE: Final = re.compile(
    r"[A-Za-z_]\w*\(|\w+\.\w+|\w+_\w+|[a-z]+[A-Z]\w*|\b[A-Z]{2,}\w*\b|\d|[`\"'][^`\"']{2,}[`\"']|/\w|"
    r"\b(?:finally|except|try|catch|null|None|return|await|async|import|timeout|lock|race|leak|orphan\w*|exception|"
    r"index|key|header|endpoint|socket|thread|mutex|cursor|query|parameter|argument|default)\b"
)
REFACTOR: Final = _any(r"refactor\w*|restructure|reorgani[sz]e|simplify|clean up|modulari[sz]e|decouple")
GOAL: Final = _any(
    r"so that|in order to|because|until|must|should|into|extract\w*|move|rename|split|at most|less than|under \d+",
    r"fewer than|to (?:avoid|remove|reduce|allow|make|stop|prevent|share|use|keep|get|call|return)",
    more=r"≤|<\s*\d",
)
ARCHITECTURE: Final = _any(
    r"re-?architect\w*|redesign|from scratch|micro-?services?|new architecture|migrate (?:\w+ )*(?:to|from)",
    r"rewrite (?:the |this )?(?:\w+ )?(?:system|module|service|application|codebase|everything|whole|entire)",
    r"switch (?:\w+ )*framework|port (?:\w+ )*to|entire (?:system|codebase|application|project)",
    r"replace (?:the )?(?:whole|entire)|introduce (?:a )?(?:new )?(?:layer|framework)",
)
STEPS: Final = _any(
    r"run|start|stop|open|send|call|execute|disconnect|connect|click|request|post|load|import|install|kill|restart|upload|type",
    r"pass|set|create|delete|when|after|if|with|python3?|pytest|curl|npm|node|cargo|go test|make|grep|steps?|reproduce",
    more=r"[`$]",
)
EXPECTED: Final = _any(
    r"should|must|expect\w*|verif\w+|return\w*|show\w*|no longer|no|not|exit\w*|equal\w*|pass(?:es)?|fail\w*|success\w*",
    r"instead|print\w*|raise\w*|output\w*|contain\w*|exist\w*|match\w*|stays?|remain\w*|confirm|ensure|assert\w*|is|are|gives?",
)
TRIFLES: Final = _any(
    r"typo|spelling|comment|docstring|format\w*|whitespace|indent\w*|unused import|naming|rename|style|wording"
)
GRAVE: Final = _any(
    r"crash\w*|data loss|loses? data|corrupt\w*|security|injection|vulnerab\w*|password|credential\w*|deadlock\w*",
    r"segfault|remote code|XSS|CSRF|path traversal|privilege",
)
PLACEHOLDER: Final = re.compile(
    r"\bpath/to/|\b(?:TODO|TBD|FIXME|XXX)\b|<[a-z][a-z _-]*>|\{[A-Z_]{3,}\}|critical\|major|YYYY-MM-DD|lorem ipsum|"
    r"Clear description of the problem|Specific instructions on what to change|How to test that the fix works|"
    r"^\s*(?:\.\.\.|…|n/?a|none|-)\s*$",
    re.IGNORECASE,
)
LAZY_CHECK: Final = re.compile(
    r"\s*(?:(?:just )?(?:test|check|verify|try|review|see)"
    r"(?: (?:it|this|that it works|if it works|manually|it works|the (?:code|fix|change)))*|"
    r"(?:make sure|ensure) (?:that )?it works|manual(?:ly)?(?: testing)?|it works|works|tests?)[.! ]*",
    re.IGNORECASE,
)
#: Words that two fixes may share without belonging together.
COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "this that with from when then than into does have will file line code test tests verify issue check should must "
        "which after before there where while each only also function method class return returns value values call calls "
        "adds using used uses missing wrong make makes error errors src main init instead because without",
    )
)
