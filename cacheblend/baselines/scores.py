"""What a reply that rates itself says: an answer, and how fully it answers. Knows text and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cacheblend.trace import Reply

# “Score: 80” at the beginning of a line or behind a sentence's end, dressed up as models do it (**Score:** 80/100).
_LABEL = re.compile(r"(?:^|(?<=[.!?;,]))[ \t*_#>-]*score[ \t*_]*[:=]", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(r"[\s*_]*(\d+)(?:\.\d+)?(?![\d:]|[.,]\d)")
BEST = 100


def read_reply(source: str, text: str) -> Reply:
    """A reply and the score it gives itself: the first number that is labelled one, if it is between 0 and 100."""
    label = _LABEL.search(text)
    number = _NUMBER.match(text, label.end()) if label and text[: label.start()].strip() else None
    score = int(number[1]) if number and int(number[1]) <= BEST else None
    return Reply(source=source, text=text, score=score)


def answer_of(reply: Reply) -> str:
    """What a reply answers: the text in front of its score, or all of it where there is none."""
    label = _LABEL.search(reply.text)
    return reply.text[: label.start()].strip() if label and reply.score is not None else reply.text


def best(replies: Sequence[Reply]) -> int:
    """Which reply trusts itself most. One without a score counts as 0; of equals the earlier."""
    return max(range(len(replies)), key=lambda i: (replies[i].score or 0, -i))
