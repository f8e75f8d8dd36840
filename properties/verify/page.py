"""The report as one page: no script, nothing fetched, every text escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from itertools import groupby

from logitproof.properties.detected import FOLLOWS, PARTLY, closeness, told
from logitproof.properties.detective import Answered, Examination

from .census import by_kind
from .charts import CLASSES, heat_map, histogram, ratio_bar, strip, ulp_histogram
from .matrix import KillMatrix
from .report import (
    CONVENTIONS,
    FAILS,
    HOLDS,
    KNOWN,
    LABELS,
    NOT_APPLICABLE,
    UNDECIDED,
    UNEXPECTED,
    Report,
    Verdict,
    conclusion,
    failure_facts,
    legend,
)

__all__ = ["page"]

ALARM = ' class="alarm"'
WORST_FIRST = (FAILS, UNEXPECTED, UNDECIDED, KNOWN, HOLDS, NOT_APPLICABLE)
UNFOLDED = 3  # families of which the first failure is told in full at once
SIGNS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "?", NOT_APPLICABLE: "–", KNOWN: "≈", UNEXPECTED: "!"}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #5b6570; --line: #d9dee4;
  --paper: #fff; --band: #f5f7f9; --ok: #1a7f37; --bad: #cf222e; --open: #b7791f;
  --none: #b4bcc5; --faint: #e3e7ec; --badpaper: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa5b1; --line: #30363d;
  --paper: #0d1117; --band: #161b22; --ok: #3fb950; --bad: #ff6a61; --open: #d9a03a;
  --none: #565f69; --faint: #2a3038; --badpaper: #3b1417; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1120px; margin: 0 auto; padding: 24px; }
h1 { font-size: 15px; font-weight: 500; color: var(--soft); margin: 0 0 12px; }
h2 { font-size: 18px; margin: 36px 0 10px; }
h3 { font: 600 13px ui-monospace, monospace; margin: 0 0 4px; }
h3 + .wrap { margin-bottom: 18px; }
.banner { border-left: 10px solid; padding: 14px 18px; background: var(--band);
  border-radius: 4px; }
.banner > b { font-size: 28px; display: block; margin-bottom: 10px; }
.banner.ok { border-color: var(--ok); } .banner.ok > b { color: var(--ok); }
.banner.bad { border-color: var(--bad); } .banner.bad > b { color: var(--bad); }
.banner.open { border-color: var(--open); } .banner.open > b { color: var(--open); }
.banner > p { margin: 0 0 14px; max-width: 90ch; font-size: 15.5px; }
.banner > p.named { padding: 8px 12px; border: 1px solid var(--open); border-radius: 4px; }
.banner > p.named b { color: var(--open); }
.families { display: flex; flex-wrap: wrap; gap: 10px 26px; }
div.family { display: grid; grid-template-columns: auto auto; gap: 2px 8px;
  justify-content: start; align-items: baseline; }
div.family b { font: 600 13px ui-monospace, monospace; }
div.family span { color: var(--soft); font-size: 12.5px; }
div.family.bad b, div.family.bad span { color: var(--bad); }
div.family.open b, div.family.open span { color: var(--open); }
div.family svg { grid-column: 1 / 3; }
.card { border: 1px solid var(--bad); border-radius: 6px; margin: 12px 0; padding: 12px 16px; }
.card summary { cursor: pointer; }
.card summary b { font: 600 15px ui-monospace, monospace; color: var(--bad); }
.card summary span { color: var(--soft); font-size: 13.5px; margin-left: 12px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 14px; margin: 6px 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
dd.code { font-family: ui-monospace, monospace; font-size: 13px; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 13px; }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td code { font-size: 13.5px; font-weight: 600; } td p { margin: 1px 0 0; color: var(--soft);
  font-size: 13.5px; }
.chip { display: inline-block; min-width: 92px; padding: 1px 8px; border-radius: 10px;
  color: #fff; font-size: 13px; white-space: nowrap; }
.chip.ok { background: #1a7f37; } .chip.bad { background: #cf222e; font-weight: 700; }
.chip.open { background: #9a6700; } .chip.none { background: #6e7781; }
tr.bad td { background: var(--badpaper); }
tr.family th { color: var(--ink); font-weight: 600; font-size: 14px; padding-top: 20px;
  border-bottom: 2px solid var(--line); } tr .alarm, tr.alarm { color: var(--bad); }
td.ratio { white-space: nowrap; } td.ratio svg { margin-right: 6px; }
.wrap { display: flex; flex-wrap: wrap; gap: 20px 34px; } .scroll { overflow-x: auto; }
.note { color: var(--soft); font-size: 13.5px; max-width: 76ch; }
svg text { font: 10.5px ui-monospace, monospace; fill: var(--soft); }
svg text.alarm { fill: var(--bad); font-weight: 700; }
rect.ok, rect.killed { fill: var(--ok); } rect.bad { fill: var(--bad); }
rect.open { fill: var(--open); } rect.none { fill: var(--none); }
rect.early { opacity: 0.72; } rect.late { opacity: 0.45; }
rect.track, rect.survived { fill: var(--faint); }
rect.not-run { fill: none; stroke: var(--faint); }
path.axis { stroke: var(--soft); } path.limit { stroke: var(--bad); stroke-dasharray: 3 2; }
.bars td { border: 0; padding: 1px 8px 1px 0; font-size: 13px; }
.bars { width: auto; } .bars i { display: block; height: 11px; background: var(--ok);
  border-radius: 2px; }
"""


def page(report: Report, matrix: KillMatrix | None) -> str:
    """The whole file."""
    sentence, _ = conclusion(report)
    body = "\n".join(_sections(report, matrix))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(sentence)} {escape(report.title)}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _sections(report: Report, matrix: KillMatrix | None) -> Iterator[str]:
    sentence, verdict = conclusion(report)
    yield f"<h1>{escape(report.title)}</h1>"
    yield f'<div class="banner {CLASSES[verdict]}"><b>{escape(sentence)}</b>'
    if report.conventions is not None:
        named = ' class="named"' if report.conventions.word in (FOLLOWS, PARTLY) else ""
        told_ = escape(report.conventions.sentence)
        yield f"<p{named}><b>{CONVENTIONS}:</b> {told_}</p>"
    yield from _families(report.verdicts)
    yield "</div>"
    yield f'<p class="note">{escape(legend(report))}</p>'
    if report.failed:
        yield "<h2>What fails</h2>"
        firsts = {_family(v): v for v in reversed(report.failed)}
        unfolded = [*firsts.values()][::-1][:UNFOLDED]
        yield from (_card(report, v, unfolded=v in unfolded) for v in report.failed)
    if report.detective is not None:
        yield from _detective(report.detective)
    yield "<h2>Laws</h2>"
    yield from _table(by_family(report.verdicts))
    yield from _histograms(report.verdicts)
    yield from _census(report.verdicts)
    if matrix is not None:
        yield from _kills(matrix)
    yield "<h2>Computed with</h2><dl>"
    for name, fact in asdict(report.environment).items():
        yield f"<dt>{escape(LABELS.get(name, name))}</dt><dd>{escape(fact)}</dd>"
    yield "</dl>"


def _detective(found: Examination) -> Iterator[str]:
    """Question by question, what explains the answer; what is nearest, where nothing does."""
    yield "<h2>Which conventions it follows</h2>"
    yield '<p class="note">A small decoder whose answers differ under every convention, compared'
    yield "with the scalar decoder under each of them, alone and in pairs; what is near is held to"
    yield "its own derived bound. What one answer tells is taken for granted in the next.</p>"
    yield "<table><tr><th>its answer is</th><th>asked</th><th>explained by</th>"
    yield '<th class="n">tried</th></tr>'
    for answer in found.answers:
        kind, word = _kind(answer)
        yield f'<tr class="{kind}"><td><span class="chip {kind}">{word}</span></td>'
        yield f"<td>{escape(answer.question)}</td><td>{_explained(answer)}</td>"
        yield f'<td class="n">{answer.tried or ""}</td></tr>'
    for batch in found.rejudged:
        right = batch.followed <= 1.0
        kind, word = CLASSES[UNDECIDED if right else FAILS], "explained"
        by = escape(str(found.followed))
        if not right:
            word, by = f"not {word}", f"not by {by}"
        yield f'<tr class="{kind}"><td><span class="chip {kind}">{word}</span></td>'
        yield f"<td>logits of the case that fails {escape(batch.law)}</td>"
        yield f"<td>{by}<p>error {batch.followed:.2g} of its bound; as"
        yield f"specified, {batch.specified:.2g} of its bound</p></td><td></td></tr>"
    for probe in found.probes:
        yield f"<tr><td></td><td>{escape(probe.question)}</td><td>{escape(probe.answer)}"
        yield f"<p>specified: {escape(probe.specified)}</p></td><td></td></tr>"
    yield "</table>"


def _kind(answer: Answered) -> tuple[str, str]:
    if answer.refused is not None:
        return CLASSES[FAILS], "none"
    if answer.explained:
        right = answer.as_specified
        return (CLASSES[HOLDS], "as specified") if right else (CLASSES[UNDECIDED], "explained")
    return CLASSES[FAILS], "not explained"


def _explained(answer: Answered) -> str:
    """What explains it; the nearest, where nothing does."""
    if answer.refused is not None:
        return escape(answer.refused)
    nearest = "" if answer.explained else "nearest: "
    return "".join(
        f"{nearest}{escape(told(match))}<p>{escape(closeness(match))}</p>"
        for match in answer.matches
    )


def by_family(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Families in the order of their first law, each in one piece."""
    families = list(dict.fromkeys(map(_family, verdicts)))
    return sorted(verdicts, key=lambda v: families.index(_family(v)))


def _families(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each family's name, how many of its laws hold, and a square for each of them."""
    yield '<div class="families">'
    for family, some in groupby(by_family(verdicts), key=_family):
        own = list(some)
        kinds = {v.verdict for v in own}
        worst = next(kind for kind in WORST_FIRST if kind in kinds)
        yield f'<div class="family {CLASSES[worst]}"><b>{escape(family)}</b>'
        yield f"<span>{_held(own)}</span>{strip(own)}</div>"
    yield "</div>"


def _held(verdicts: Sequence[Verdict]) -> str:
    """`10 of 11`, of the laws that were tried."""
    tried = [v for v in verdicts if v.verdict != NOT_APPLICABLE]
    held = sum(v.verdict == HOLDS for v in tried)
    return f"{held} of {len(tried)}" if tried else "not applicable"


def _card(report: Report, verdict: Verdict, *, unfolded: bool) -> str:
    """Some stand open; of the others the place shows, or what was found."""
    facts = [
        f"<dt>{name}</dt><dd{_code(name)}>{escape(text)}</dd>"
        for name, text in failure_facts(report, verdict).items()
    ]
    if sum(verdict.away) > 1:
        facts.append(f"<dt>ulps away</dt><dd>{ulp_histogram(verdict.away, CLASSES[FAILS])}</dd>")
    told = escape(verdict.place or verdict.difference or "")
    return (
        f'<details class="card"{" open" if unfolded else ""}>'
        f"<summary><b>{escape(verdict.id)}</b><span>{told}</span></summary>"
        f"<dl>{''.join(facts)}</dl></details>"
    )


def _code(name: str) -> str:
    return ' class="code"' if name in ("input", "found", "again") else ""


def _table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    measured = any(v.ratios for v in verdicts)
    worst = '<th>worst error / bound</th><th class="n">median</th>' if measured else ""
    yield '<table><tr><th>verdict</th><th>law</th><th class="n">cases</th>'
    yield f'{worst}<th class="n">time</th></tr>'
    columns = 6 if measured else 4
    for v, before in zip(verdicts, (None, *verdicts), strict=False):
        if before is None or _family(before) != _family(v):
            yield f'<tr class="family"><th colspan="{columns}">{_summary(_family(v), verdicts)}'
            yield "</th></tr>"
        kind = CLASSES[v.verdict]
        yield f'<tr class="{kind}"><td><span class="chip {kind}">{SIGNS[v.verdict]} {v.verdict}'
        yield f"</span></td><td><code>{escape(v.id)}</code><p>{escape(_statement(v))}</p></td>"
        yield f'<td class="n">{v.cases}</td>{_ratios(v) if measured else ""}'
        yield f'<td class="n">{v.seconds:.2f} s</td></tr>'
    yield "</table>"


def _family(verdict: Verdict) -> str:
    return verdict.id.partition(".")[0]


def _summary(family: str, verdicts: Sequence[Verdict]) -> str:
    """`decoder: 10 of 11 hold`"""
    own = [v for v in verdicts if _family(v) == family]
    tried = any(v.verdict != NOT_APPLICABLE for v in own)
    kind = ALARM if any(v.verdict in (FAILS, UNDECIDED) for v in own) else ""
    return f"{escape(family)}: <span{kind}>{_held(own)}{' hold' if tried else ''}</span>"


def _statement(verdict: Verdict) -> str:
    needs = f" Needs {', '.join(verdict.missing)}." if verdict.missing else ""
    open_ = verdict.undecidable
    counted = f" {open_} of {verdict.entries} entries undecidable." if open_ else ""
    return f"{verdict.statement}{needs}{counted}"


def _ratios(verdict: Verdict) -> str:
    worst, median = verdict.worst, verdict.median
    if worst is None or median is None:
        return '<td></td><td class="n"></td>'
    return f'<td class="ratio">{ratio_bar(worst)} {worst:.3g}</td><td class="n">{median:.3g}</td>'


def _histograms(verdicts: Sequence[Verdict]) -> Iterator[str]:
    measured = [v for v in verdicts if v.ratios]
    if not measured:
        return
    yield "<h2>How near to the bound</h2>"
    yield '<p class="note">Left: cases by their largest error over the bound derived for that'
    yield "entry. A law far to the left has a loose bound; right of the line is wrong. Right:"
    yield "entries by their distance from the truth in units in the last place; many where terms"
    yield "cancel are no fault, which is why the bound decides.</p>"
    for v in measured:
        ulps = ulp_histogram(v.ulps, CLASSES[v.verdict]) if any(v.ulps) else ""
        yield f'<h3>{escape(v.id)}</h3><div class="wrap">{histogram(v.ratios)}{ulps}</div>'
    yield '<p class="note">The other laws have no histogram: they compare bits, and one that holds'
    yield "found every entry 0 ulp away, or facts, or what it derives the rounding of itself.</p>"


def _census(verdicts: Sequence[Verdict]) -> Iterator[str]:
    total: Counter[str] = sum((Counter(v.regimes) for v in verdicts), Counter())
    if not total:
        return
    yield "<h2>What was tried</h2>"
    yield '<p class="note">Cases by the kind of their input, over all laws; in red what no case is.'
    yield '</p><div class="wrap">'
    for kind, named in by_kind(total).items():
        most = max(named.values())
        yield f'<div><h3>{escape(kind)}</h3><table class="bars">'
        for name, count in named.items():
            bar = f'<i style="width:{max(1, round(120 * count / most))}px"></i>' if count else ""
            yield f"<tr{'' if count else ALARM}><td>{escape(name)}</td>"
            yield f'<td class="n">{count}</td><td>{bar}</td></tr>'
        yield "</table></div>"
    yield "</div>"


def _kills(matrix: KillMatrix) -> Iterator[str]:
    survivors = [f for f, row in zip(matrix.faults, matrix.killed, strict=True) if True not in row]
    many = f"{len(matrix.faults) - len(survivors)} of {len(matrix.faults)} faults killed"
    yield f"<h2>Kill matrix: {many}</h2>"
    yield '<p class="note">Green: the law sees the planted fault; the paler, the more examples it'
    yield "needs (1, up to 5, more). Grey: it does not see it. Empty: not run. Red names: a fault"
    yield "that no law sees, a law that sees no fault.</p>"
    yield f'<div class="scroll">{heat_map(matrix)}</div>'
