"""Where chance may decide a test: random numbers, clocks, threads, processes, named in the text of the files involved.

One red run before and one green run after are no proof of anything where a coin is thrown. Legs are repeated there,
and only there or when two runs of one tree disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["CONFIRMATIONS", "chance_in"]

#: How many further runs of each leg confirm the first where chance may play.
CONFIRMATIONS: Final = 5
_WORDS: Final = re.compile(
    r"\brandom\b|\brandint\b|\bMath\.random\b|\bS?RANDOM\b|/dev/u?random|\bshuf\b|\buuid\w*\(|\bsecrets\."
    r"|\btime\.(?:time|monotonic|perf_counter|sleep)\b|\bdatetime\.(?:now|utcnow|today)\b|\bDate\.now\b|\bnew Date\(\)"
    r"|\bperformance\.now\b|\bdate \+|\bos\.getpid\b|\bprocess\.pid\b|\$\$(?!\w)|\bthreading\b|\bmultiprocessing\b"
    r"|\bsetTimeout\b|\bsleep [\d.$]|\brand\(|\brand::|\bThread\b|\bhash\(|\bos\.urandom\b|\bid\("
)


def chance_in(texts: Iterable[str]) -> str:
    """The first word that lets chance in; "" when there is none."""
    for text in texts:
        if found := _WORDS.search(text):
            return found[0].strip("( ")
    return ""
