"""Laws over the published figures: what a decoder built to the specification must give."""

from collections.abc import Callable, Iterable
from typing import Any

from logitproof.golden.figures import (
    ConfigFigure,
    MatrixFigure,
    PositionLosses,
    PrintedLogits,
    PrintedLoss,
    Run,
    TableStart,
    Words,
    figures,
    from_bits,
)
from logitproof.properties.scalar import (
    C_LIBRARY,
    EXACT,
    Config,
    Generator,
    Result,
    ScalarDecoder,
    initial_weights,
)
from logitproof.properties.scalar.generator import depth_scaled

from .difference import (
    Difference,
    digest,
    doubles,
    first_difference,
    first_named_difference,
)
from .law import Law
from .protocol import Arrays, Capable, DecoderUnderTest

__all__ = ["LAWS", "config_of", "weights_of"]

DRAWN = Run | PrintedLogits | PrintedLoss


def config_of(figure: ConfigFigure) -> Config:
    """A published model's sizes."""
    return Config(
        vocabulary_size=figure.vocabulary_size,
        model_width=figure.model_width,
        heads=figure.heads,
        feed_forward_width=figure.feed_forward_width,
        layers=figure.layers,
        max_positions=figure.max_positions,
        rope_base=from_bits(figure.rope_base),
        rms_epsilon=from_bits(figure.rms_epsilon),
    )


def weights_of(case: DRAWN) -> dict[str, Any]:
    """The weights of a published case, from the generator of `scalar`."""
    config = config_of(figures().configs[case.config])
    weights = initial_weights(config, Generator(case.seed))
    scaled = isinstance(case, Run) and case.depth_scaled
    return dict(depth_scaled(weights, config.layers) if scaled else weights)


def _load(implementation: DecoderUnderTest, case: DRAWN) -> None:
    implementation.load(config_of(figures().configs[case.config]), weights_of(case))


def _equal(what: str, expected: object, actual: object) -> Difference | None:
    if expected == actual:
        return None
    return Difference(what=what, expected=str(expected), actual=str(actual))


def _digested(
    what: str, expected: str, actual: Arrays, witness: Callable[[], Arrays]
) -> Difference | None:
    """None where the digest is the published one; else the first place, by a second witness.

    The scalar decoder names the place, if its own arrays have the published digest here.
    """
    found = digest(actual.values())
    if found == expected:
        return None
    truth = witness()
    places = digest(truth.values()) == expected
    difference = first_named_difference(what, truth, actual) if places else None
    return difference or _equal(f"digest of every {what}", expected, found)


def _runs(_: int) -> Iterable[Run]:
    return figures().runs.values()


def _drawn(implementation: Capable, case: Any) -> Difference | None:
    match case:
        case Words():
            words = [f"{word:016x}" for word in implementation.words(case.seed, len(case.words))]
            return _equal(f"words of seed {case.seed}", case.words, words)
        case MatrixFigure():
            values = doubles(implementation.matrix(case.seed, *case.shape)).reshape(-1).tolist()
            expected = [from_bits(bits) for bits in case.values]
            return first_difference(f"matrix of seed {case.seed}", expected, values)
        case TableStart():
            run = figures().runs[case.run]
            weights, _ = implementation.initial(
                config_of(figures().configs[run.config]), run.seed, depth_scaled=False
            )
            start = doubles(weights["token_embedding.weight"]).reshape(-1)[: len(case.values)]
            return first_difference("table", [from_bits(bits) for bits in case.values], start)
    weights, state = implementation.initial(
        config_of(figures().configs[case.config]), case.seed, depth_scaled=case.depth_scaled
    )
    return _equal("generator state", case.final_state, f"{state:016x}") or _digested(
        "value", case.parameters_digest, weights, lambda: weights_of(case)
    )


def _loss(implementation: DecoderUnderTest, case: Any) -> Difference | None:
    _load(implementation, case)
    loss, _ = implementation.loss_and_gradients(case.ids, case.targets)
    if isinstance(case, PrintedLoss):
        places = len(case.decimals.partition(".")[2])
        return _equal("printed mean loss", case.decimals, f"{loss:.{places}f}")
    return first_difference("mean loss", from_bits(case.loss), loss)


def _raw_sum(implementation: Capable, run: Run) -> Difference | None:
    _load(implementation, run)
    assert run.raw_sum is not None
    total = implementation.loss_sum(run.ids, run.targets)
    return first_difference("raw sum", from_bits(run.raw_sum), total)


def _position_losses(implementation: DecoderUnderTest, case: PositionLosses) -> Difference | None:
    run = figures().runs[case.run]
    _load(implementation, run)
    for position, decimals in enumerate(case.decimals):
        valid = [[t == position for t in range(len(case.decimals))]]
        targets = [[target if t == position else -1 for t, target in enumerate(run.targets[0])]]
        loss, _ = implementation.loss_and_gradients(run.ids, targets, None, valid)
        difference = first_difference(f"loss of position {position}", float(decimals), loss)
        if difference is not None:
            return difference
    return None


def _is_c_library(implementation: DecoderUnderTest) -> bool:
    return implementation.conventions["functions"] == "c-library"


def _scalar(implementation: DecoderUnderTest, run: Run) -> Result:
    """The scalar decoder's results, with the elementary functions that are declared."""
    arithmetic = C_LIBRARY if _is_c_library(implementation) else EXACT
    decoder = ScalarDecoder(config_of(figures().configs[run.config]), weights_of(run), arithmetic)
    return decoder.run(run.ids, run.targets)


def _logits(implementation: DecoderUnderTest, case: Any) -> Difference | None:
    _load(implementation, case)
    logits = doubles(implementation.logits(case.ids))
    if isinstance(case, Run):
        c_library = _is_c_library(implementation)
        expected = case.c_library_logits_digest if c_library else case.logits_digest
        return _digested(
            "value",
            expected,
            {"the logits": logits},
            lambda: {"the logits": _scalar(implementation, case).logits},
        )
    places = len(case.decimals[0].partition(".")[2])
    shown = [f"{logit:.{places}f}" for logit in logits[0, case.position].tolist()]
    return _equal(f"printed logits of position {case.position}", case.decimals, shown)


def _gradients(implementation: DecoderUnderTest, run: Run) -> Difference | None:
    _load(implementation, run)
    _, gradients = implementation.loss_and_gradients(run.ids, run.targets)
    c_library = _is_c_library(implementation)
    expected = run.c_library_gradients_digest if c_library else run.gradients_digest
    names = _equal("names of the gradients", list(weights_of(run)), list(gradients))
    return names or _digested(
        "gradient", expected, gradients, lambda: _scalar(implementation, run).gradients
    )


def _table_gradient(implementation: Capable, _: object) -> Difference | None:
    figure = figures().table_gradient
    run = figures().runs[figure.run]
    _load(implementation, run)
    parts = implementation.table_gradients(run.ids, run.targets)
    for name, decimals, part in zip(
        ("total", "lookup", "head"), (figure.total, figure.lookup, figure.head), parts, strict=True
    ):
        value = float(doubles(part)[figure.row, figure.feature])
        what = f"{name} gradient of row {figure.row}, feature {figure.feature}"
        difference = first_difference(what, float(decimals), value)
        if difference is not None:
            return difference
    return None


LAWS = (
    Law(
        id="published.initial-values",
        statement="The generator's words, the drawn matrices, every run's parameters and its final "
        "generator state are the published ones.",
        source="numerics_init.md, fixtures_derived.md section 1",
        needs=("initial-values",),
        faults=(
            "draw-32-bits",
            "draw-down-before-gate",
            "depth-scales-query",
            "xavier-other-association",
        ),
        cases=lambda _: [figures().words, *figures().matrices, figures().table_start, *_runs(0)],
        check=_drawn,
    ),
    Law(
        id="published.losses",
        statement="The mean loss of every golden run has the published bits, that of the small "
        "decoder the published digits.",
        source="fixtures.md section 1, fixtures_derived.md",
        needs=("specified-bits",),
        levels=("loss",),
        faults=("branches-exchanged-by-both", "contraction-descending", "mean-loss-by-reciprocal"),
        cases=lambda _: [*_runs(0), *figures().printed_losses],
        check=_loss,
    ),
    Law(
        id="published.position-losses",
        statement="The loss of each position of run T1 is the published double.",
        source="fixtures_derived.md section 1",
        needs=("specified-bits",),
        levels=("loss",),
        faults=("mean-over-all-cells",),
        cases=lambda _: [figures().position_losses],
        check=_position_losses,
    ),
    Law(
        id="published.raw-sums",
        statement="The raw loss sums have the published bits.",
        source="fixtures_derived.md section 1",
        needs=("specified-bits", "raw-sum"),
        faults=("raw-sum-is-mean",),
        cases=lambda _: [run for run in _runs(0) if run.raw_sum is not None],
        check=_raw_sum,
    ),
    Law(
        id="published.logits",
        statement="The logits of every golden run have the published digest, those of the small "
        "decoder the published digits.",
        source="fixtures_derived.md sections 1 and 2",
        needs=("specified-bits",),
        levels=("forward",),
        faults=("contraction-descending", "inverse-root-by-sqrt", "softmax-sum-with-maximum"),
        cases=lambda _: [*_runs(0), *figures().printed_logits],
        check=_logits,
    ),
    Law(
        id="published.gradients",
        statement="All gradients of every golden run have the published digest.",
        source="fixtures_derived.md section 1",
        needs=("specified-bits",),
        levels=("gradients",),
        faults=(
            "flat-weight-gradient",
            "query-key-value-order",
            "norm-square-doubled",
            "norm-squares-first",
            "residual-adjoint-last",
            "gather-into-head-gradient",
        ),
        cases=_runs,
        check=_gradients,
    ),
    Law(
        id="published.table-gradient",
        statement="Row 99, feature 0 of run T1's table gradient, and its lookup and head parts, "
        "are the published doubles.",
        source="fixtures.md section 1",
        needs=("specified-bits", "gradient-parts"),
        faults=("head-gradient-dropped", "scatter-overwrites-head"),
        cases=lambda _: [figures().table_gradient],
        check=_table_gradient,
    ),
)
