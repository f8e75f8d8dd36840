"""Laws over a whole decoder that hold bit for bit, whatever its weights."""

from collections.abc import Iterable, Iterator
from typing import Any

from logitproof.properties.scalar import C_LIBRARY, EXACT, Layout, Result, ScalarDecoder

from .cases import Case, full_cases, mixed_cases, packed_cases, padded_cases, with_valid
from .difference import Difference, doubles, first_difference, first_named_difference
from .law import Law
from .levels import LAYOUTS, VALUES, claimed
from .precision import answered
from .protocol import Capable, DecoderUnderTest, Ids

__all__ = ["LAWS", "prefix_causality", "scalar_bits"]


def _load(implementation: DecoderUnderTest, case: Case) -> None:
    implementation.load(case.config, case.weights)


def _first(differences: Iterable[Difference | None]) -> Difference | None:
    return next((d for d in differences if d is not None), None)


def _scalar_run(implementation: DecoderUnderTest, case: Case) -> Result:
    """The scalar decoder's results, with the elementary functions that are declared."""
    c_library = implementation.conventions["functions"] == "c-library"
    scalar = ScalarDecoder(case.config, case.weights, C_LIBRARY if c_library else EXACT)
    return scalar.run(case.ids, case.targets, case.layout, case.valid)


def scalar_bits(implementation: DecoderUnderTest, case: Case) -> Difference | None:
    """Logits, mean loss and gradients beside the scalar decoder's, as far as they are claimed."""
    expected = _scalar_run(implementation, case)
    _load(implementation, case)

    def compared() -> Iterator[Difference | None]:
        if claimed(implementation, "forward"):
            logits = implementation.logits(case.ids, case.layout)
            yield first_difference("logits", expected.logits, logits)
        if _asks_loss(implementation):
            loss, gradients = implementation.loss_and_gradients(
                case.ids, case.targets, case.layout, case.valid
            )
            yield from _same_loss(
                implementation, "mean loss", expected.loss, loss,
                "gradient", expected.gradients, gradients,
            )  # fmt: skip

    return _first(compared())


def _asks_loss(implementation: DecoderUnderTest) -> bool:
    return claimed(implementation, "loss") or claimed(implementation, "gradients")


def _same_loss(
    implementation: DecoderUnderTest,
    what: str,
    loss: Any,
    actual_loss: Any,
    whose: str,
    gradients: Any,
    actual_gradients: Any,
) -> Iterator[Difference | None]:
    """Loss and gradients, as far as they are claimed."""
    if claimed(implementation, "loss"):
        yield first_difference(what, loss, actual_loss)
    if claimed(implementation, "gradients"):
        yield first_named_difference(whose, gradients, actual_gradients)


def _raw_sum(implementation: Capable, case: Case) -> Difference | None:
    expected = _scalar_run(implementation, case).loss_sum
    _load(implementation, case)
    total = implementation.loss_sum(case.ids, case.targets, case.layout, case.valid)
    return first_difference("raw sum", expected, total)


def prefix_causality(implementation: DecoderUnderTest, case: Case) -> Difference | None:
    """Logits before every position, whatever stands from there on; of ordinary text."""
    _load(implementation, case)
    whole = answered(implementation, implementation.logits(case.ids))
    V, T = case.config.vocabulary_size, len(case.ids[0])

    def changed(start: int) -> Iterator[Difference | None]:
        other = [[*row[:start], *((i + 1) % V for i in row[start:])] for row in case.ids]
        what = f"logits before position {start} when the ids from there on change"
        logits = answered(implementation, implementation.logits(other))
        yield first_difference(what, whole[:, :start], logits[:, :start])
        alone = answered(
            implementation, implementation.logits([list(row[:start]) for row in case.ids])
        )
        yield first_difference(f"logits of the first {start} ids alone", whole[:, :start], alone)

    return _first(difference for start in range(1, T) for difference in changed(start))


def _row_independence(implementation: DecoderUnderTest, case: Case) -> Difference | None:
    _load(implementation, case)
    together = answered(implementation, implementation.logits(case.ids))
    backwards = answered(implementation, implementation.logits(case.ids[::-1]))
    alone = (
        first_difference(
            f"logits of row {b} alone", together[b], answered(implementation, logits)[0]
        )
        for b, logits in enumerate(implementation.logits([row]) for row in case.ids)
    )
    return first_difference("logits with the rows in reverse", together, backwards[::-1]) or _first(
        alone
    )


def _segments(case: Case) -> Iterator[tuple[int, int, int]]:
    """Row, first cell and size of each segment."""
    assert case.segments is not None
    for b, sizes in enumerate(case.segments):
        first = 0
        for size in sizes:
            yield b, first, size
            first += size


def _answered(implementation: DecoderUnderTest, answer: Any) -> Any:
    """Loss and gradients as float64, from the type declared."""
    loss, gradients = answer
    return answered(implementation, loss), {
        name: answered(implementation, value) for name, value in gradients.items()
    }


def _separate(implementation: DecoderUnderTest, case: Case) -> Difference | None:
    """Each segment in the batch against the same segment as a batch of its own."""
    _load(implementation, case)
    assert case.layout is not None
    forward = claimed(implementation, "forward")
    together = (
        answered(implementation, implementation.logits(case.ids, case.layout)) if forward else None
    )
    B, T = case.layout.shape

    def one(b: int, first: int, size: int) -> Iterator[Difference | None]:
        cells = slice(first, first + size)
        ids, targets = [list(case.ids[b][cells])], [list(case.targets[b][cells])]
        where = f"row {b}, cells {first} to {first + size - 1}"
        if together is not None:
            logits = answered(implementation, implementation.logits(ids))[0]
            yield first_difference(f"logits of {where}", logits, together[b, cells])
        if not _asks_loss(implementation):
            return
        valid = [[r == b and first <= t < first + size for t in range(T)] for r in range(B)]
        masked = with_valid(case, valid)
        loss, gradients = _answered(implementation, implementation.loss_and_gradients(ids, targets))
        loss_among, among = _answered(
            implementation,
            implementation.loss_and_gradients(
                masked.ids, masked.targets, masked.layout, masked.valid
            ),
        )
        yield from _same_loss(
            implementation, f"mean loss of {where}", loss, loss_among,
            f"for {where} alone in the loss, gradient", gradients, among,
        )  # fmt: skip

    return _first(d for segment in _segments(case) for d in one(*segment))


def _tied_gradient(implementation: Capable, case: Case) -> Difference | None:
    _load(implementation, case)
    parts = (doubles(p) for p in implementation.table_gradients(case.ids, case.targets))
    total, lookup, head = parts
    used = {token for row in case.ids for token in row}
    unused = [v for v in range(case.config.vocabulary_size) if v not in used]
    return first_difference("table gradient against lookup + head", lookup + head, total) or (
        first_difference(
            "lookup gradient of unused rows", 0.0 * abs(lookup[unused]), lookup[unused]
        )
    )


def _accumulation(implementation: Capable, case: Case) -> Difference | None:
    _load(implementation, case)
    once = implementation.backward_passes(case.ids, case.targets, [1.0])
    sums: dict[str, Any] = {name: doubles(value) for name, value in once.items()}
    for passes in (2, 3, 4):
        sums = {name: total + doubles(once[name]) for name, total in sums.items()}
        _load(implementation, case)
        many = implementation.backward_passes(case.ids, case.targets, [1.0] * passes)
        difference = first_named_difference(f"after {passes} passes, gradient", sums, many)
        if difference is not None:
            return difference
    return None


def _recomputation(implementation: Capable, case: Case) -> Difference | None:
    _load(implementation, case)
    batch = (case.ids, case.targets, case.layout, case.valid)
    loss, gradients = implementation.loss_and_gradients(*batch)
    loss_again, again = implementation.recomputed(*batch)
    return first_difference("mean loss", loss, loss_again) or first_named_difference(
        "gradient", gradients, again
    )


def _refused(case: Case) -> Iterator[tuple[str, Ids, Ids, Layout | None]]:
    """Calls that an implementation must refuse, with what is wrong about them."""
    V, C, (B, T) = case.config.vocabulary_size, case.config.max_positions, _shape(case)
    last = [list(row) for row in case.ids]
    last[-1][-1] = V
    yield "an id at the vocabulary size", last, case.targets, None
    negative = [list(row) for row in case.ids]
    negative[-1][-1] = -1
    yield "an id of -1", negative, case.targets, None
    wrong = [list(row) for row in case.targets]
    wrong[-1][-1] = V
    yield "a target at the vocabulary size", case.ids, wrong, None
    yield "more ids than positions", [[0] * (C + 1)] * B, [[0] * (C + 1)] * B, None
    yield "a layout of another shape", case.ids, case.targets, Layout.full(B, T + 1)
    yield "a target too few", case.ids, [row[1:] for row in case.targets], None


def _shape(case: Case) -> tuple[int, int]:
    return len(case.ids), len(case.ids[0])


def _refused_calls(implementation: Capable, case: Case) -> Difference | None:
    _load(implementation, case)
    implementation.backward_passes(case.ids, case.targets, [1.0])
    before = implementation.snapshot()
    for wrong, ids, targets, layout in _refused(case):
        try:
            implementation.loss_and_gradients(ids, targets, layout)
        except ValueError:
            difference = _changed(f"after refusing {wrong}", before, implementation.snapshot())
        else:
            difference = Difference(what=wrong, expected="a refusal", actual="a result")
        if difference is not None:
            return difference
    return None


def _overflowing_pass(implementation: Capable, case: Case) -> Difference | None:
    """A pass that overflows on its way, after one that did not."""
    _load(implementation, case)
    implementation.backward_passes(case.ids, case.targets, [1.0])
    before = implementation.snapshot()
    _load(implementation, case)
    try:
        implementation.backward_passes(case.ids, case.targets, [1.0, OVERFLOWING])
    except ValueError:
        return _changed("after a refused pass", before, implementation.snapshot())
    return None  # these weights let it through


OVERFLOWING = 1.7e308  # an upstream gradient that most weights carry over the edge


def _changed(when: str, before: Any, after: Any) -> Difference | None:
    names = [name for name in before if before[name] != after.get(name)]
    if list(before) == list(after) and not names:
        return None
    what = names[0] if names else "names"
    return Difference(what=f"{when}, {what}", expected="the bytes before", actual="other bytes")


LAWS = (
    Law(
        id="decoder.scalar-bits",
        statement="Logits, mean loss and every gradient have the bits of the scalar decoder, which "
        "is written from the specification alone.",
        source="numerics.md, numerics_vjp.md",
        needs=("specified-bits",),
        levels=(*VALUES, *LAYOUTS),
        faults=(
            "contraction-by-blas",
            "contraction-descending",
            "flat-weight-gradient",
            "query-key-value-order",
            "norm-square-doubled",
            "norm-squares-first",
            "residual-adjoint-last",
            "inverse-root-by-sqrt",
            "mean-by-reciprocal",
            "mean-slope-by-reciprocal",
            "gain-before-scaling",
            "softmax-sum-with-maximum",
            "log-of-one-plus-tail",
            "maximum-plus-log-minus-target",
            "mean-loss-by-reciprocal",
            "logit-gradient-divided",
            "score-divided-by-root",
            "one-branch-sigmoid",
            "silu-slope-expanded",
            "frequency-by-reciprocal",
            "frequency-by-exp-log",
            "softmax-slope-expanded",
            "probability-by-reciprocal",
            "gather-into-head-gradient",
            "sum-pairwise",
            "scatter-overwrites",
            "padded-queries-attend",
            "head-gradient-dropped",
        ),
        cases=mixed_cases,
        check=scalar_bits,
    ),
    Law(
        id="decoder.raw-sum",
        statement="The raw loss sum has the bits of the scalar decoder's; it is no product of mean "
        "and count.",
        source="numerics.md section 8",
        needs=("specified-bits", "raw-sum"),
        faults=("raw-sum-from-mean", "raw-sum-is-mean"),
        cases=mixed_cases,
        check=_raw_sum,
    ),
    Law(
        id="decoder.prefix-causality",
        statement="Later ids change no bit of earlier logits, and neither does leaving them away.",
        source="numerics.md section 12",
        needs=("row-bits",),
        levels=("forward",),
        faults=("mask-off-by-one",),
        cases=full_cases,
        check=prefix_causality,
    ),
    Law(
        id="decoder.row-independence",
        statement="A row has the same logits alone, in a batch, and with the rows in another "
        "order, bit for bit.",
        source="numerics.md section 1",
        needs=("row-bits",),
        levels=("forward",),
        faults=("softmax-maximum-of-batch",),
        cases=full_cases,
        check=_row_independence,
    ),
    Law(
        id="decoder.padded-separate",
        statement="A padded row has the logits, and alone in the loss the mean and all gradients, "
        "of the same row without padding, bit for bit.",
        source="inputs.md sections 7 and 9",
        needs=("padded", "row-bits"),
        levels=(*VALUES, "padded"),
        faults=("mean-over-all-cells", "positions-count-padding"),
        cases=padded_cases,
        check=_separate,
    ),
    Law(
        id="decoder.packed-separate",
        statement="A packed segment has the logits, and alone in the loss the mean and all "
        "gradients, of the same segment as a row of its own, bit for bit.",
        source="inputs.md sections 8 and 9",
        needs=("packed", "row-bits"),
        levels=(*VALUES, *LAYOUTS),
        faults=("packed-segments-leak", "packed-positions-run-on"),
        cases=packed_cases,
        check=_separate,
    ),
    Law(
        id="decoder.tied-gradient",
        statement="The table's gradient is the sum of its lookup and head parts, bit for bit, and "
        "the lookup part of unused rows is +0.",
        source="inputs.md section 6",
        needs=("gradient-parts",),
        faults=("scatter-overwrites-head",),
        cases=full_cases,
        check=_tied_gradient,
    ),
    Law(
        id="decoder.accumulation",
        statement="k reverse passes over one graph leave the gradient of one pass, added k times.",
        source="numerics_vjp.md sections 1 and 7",
        needs=("repeated-backward",),
        faults=("backward-overwrites", "adjoints-survive-pass"),
        cases=full_cases,
        check=_accumulation,
    ),
    Law(
        id="decoder.recomputation",
        statement="Keeping block boundaries alone changes no bit of loss or gradients.",
        source="numerics_vjp.md section 6",
        needs=("recomputation",),
        faults=("recomputation-forgets-layout",),
        cases=mixed_cases,
        check=_recomputation,
    ),
    Law(
        id="decoder.refused-calls",
        statement="A call with a wrong id, target, length or layout is refused and changes no "
        "value, gradient or revision.",
        source="STYLE.md section 1, layers.md section 13",
        needs=("refusals", "repeated-backward"),
        faults=("gradients-cleared-before-checks", "negative-id-wraps"),
        cases=full_cases,
        check=_refused_calls,
    ),
    Law(
        id="decoder.refused-pass",
        statement="A reverse pass that overflows is refused and changes no gradient.",
        source="numerics_vjp.md section 1",
        needs=("refusals", "repeated-backward"),
        faults=("commit-before-check",),
        cases=full_cases,
        check=_overflowing_pass,
    ),
)
