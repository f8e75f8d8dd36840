"""The byte-level tokenizer by its definition: walk everything, once per rank."""

from itertools import pairwise

Pair = tuple[int, int]
Merges = tuple[Pair, ...]

# Well-formed UTF-8 (the Unicode standard, table 3-7): first byte, then the range of each next.
_TAIL = (0x80, 0xBF)
_WELL_FORMED = (
    ((0x00, 0x7F),),
    ((0xC2, 0xDF), _TAIL),
    ((0xE0, 0xE0), (0xA0, 0xBF), _TAIL),
    ((0xE1, 0xEC), _TAIL, _TAIL),
    ((0xED, 0xED), (0x80, 0x9F), _TAIL),
    ((0xEE, 0xEF), _TAIL, _TAIL),
    ((0xF0, 0xF0), (0x90, 0xBF), _TAIL, _TAIL),
    ((0xF1, 0xF3), _TAIL, _TAIL, _TAIL),
    ((0xF4, 0xF4), (0x80, 0x8F), _TAIL, _TAIL),
)


def encode(data: bytes, merges: Merges) -> list[int]:
    """The content ids after one pass per rank."""
    ids = [2 + b for b in data]
    for rank, pair in enumerate(merges):
        ids, _ = one_pass(ids, shifted(pair), 258 + rank)
    return ids


def changing_passes(
    data: bytes, merges: Merges
) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Rank, replacement count, ids before and after, for each rank that replaced something."""
    ids = [2 + b for b in data]
    record = []
    for rank, pair in enumerate(merges):
        after, count = one_pass(ids, shifted(pair), 258 + rank)
        if count > 0:
            record.append((rank, count, tuple(ids), tuple(after)))
        ids = after
    return record


def one_pass(ids: list[int], pair: Pair, merged: int) -> tuple[list[int], int]:
    """Left to right, non-overlapping: a consumed id is not used again."""
    out: list[int] = []
    count = 0
    at = 0
    while at < len(ids):
        if at + 1 < len(ids) and ids[at] == pair[0] and ids[at + 1] == pair[1]:
            out.append(merged)
            count += 1
            at += 2
        else:
            out.append(ids[at])
            at += 1
    return out, count


def shifted(pair: Pair) -> Pair:
    """A merge rule in vocabulary ids."""
    return pair[0] + 2, pair[1] + 2


def decode(ids: list[int], merges: Merges) -> bytes:
    """The bytes of content ids."""
    expansions = [bytes([b]) for b in range(256)]
    for left, right in merges:
        expansions.append(expansions[left] + expansions[right])
    return b"".join(expansions[i - 2] for i in ids)


def learn(sequences: list[bytes], rounds: int) -> Merges:
    """Merge pairs by greatest overlapping count inside the sequences, then smallest pair."""
    current = [list(s) for s in sequences]
    merges: list[Pair] = []
    for rank in range(rounds):
        counts: dict[Pair, int] = {}
        for ids in current:
            for pair in pairwise(ids):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(counts.values())
        chosen = min(pair for pair, count in counts.items() if count == best)
        merges.append(chosen)
        current = [one_pass(ids, chosen, 256 + rank)[0] for ids in current]
    return tuple(merges)


def utf8_fault(data: bytes) -> tuple[int, int | None] | None:
    """Where well-formed text ends and how long the fault is (None: cut short), or None."""
    at = 0
    while at < len(data):
        row = next((r for r in _WELL_FORMED if r[0][0] <= data[at] <= r[0][1]), None)
        if row is None:
            return at, 1
        for step, (low, high) in enumerate(row):
            if at + step == len(data):
                return at, None
            if not low <= data[at + step] <= high:
                return at, step
        at += len(row)
    return None
