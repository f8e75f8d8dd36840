"""Laws over how a forward is run: recorded or not, kept or recomputed, from live bindings."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import Case, mixed_cases
from .components import Components
from .difference import Difference, first_difference
from .drawn import answered, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

MANY_LAYERS = 29  # 262 parameters: more than there are small integers of one identity


def _decoder(parts: Any, case: Case) -> Any:
    held = case.config
    names = ("vocabulary_size", "model_width", "heads", "feed_forward_width", "layers",
             "max_positions", "rope_base", "rms_epsilon")  # fmt: skip
    config = parts.DecoderConfig(**{name: getattr(held, name) for name in names})
    parameters = [parts.Parameter(name, np.array(w)) for name, w in case.weights.items()]
    return parts.Decoder.from_parameters(config, parameters)


def _layout(parts: Any, case: Case) -> Any:
    fields = ("lengths", "range_starts", "positions")
    if case.layout is None:
        return None
    return parts.SequenceLayout(**{name: getattr(case.layout, name) for name in fields})


def _losses(implementation: Components, case: Case) -> Difference | None:
    parts = implementation.parts
    decoder, layout = _decoder(parts, case), _layout(parts, case)
    given = {"layout": layout, "valid": case.valid}

    def one(name: str, loss: Any) -> Iterator[Difference | None]:
        recorded = loss(case.ids, case.targets, **given)
        plain = loss(case.ids, case.targets, **given, context=parts.NO_GRAD)
        yield first_difference(f"{name} without recording", recorded.value, plain.value)
        yield equal(f"{name} tracked: recorded, not", (True, False),
                    (recorded.tracked, plain.tracked))  # fmt: skip
        yield refused(f"a pass from the {name} without a graph", "state/untracked-output",
                      plain.backward)  # fmt: skip

    def forwards() -> Iterator[Difference | None]:
        outputs = [decoder.forward(case.ids, layout=layout, context=context)
                   for context in (parts.RECORDING, parts.NO_GRAD)]  # fmt: skip
        for name in ("embeddings", "hidden", "logits"):
            recorded, plain = (getattr(output, name) for output in outputs)
            yield first_difference(f"{name} without recording", recorded.value, plain.value)
            yield equal(f"{name} tracked: recorded, not", (True, False),
                        (recorded.tracked, plain.tracked))  # fmt: skip

    named = (("mean loss", decoder.loss), ("raw sum", decoder.loss_sum))
    return first(d for loss in named for d in one(*loss)) or first(forwards())


def _recomputed(implementation: Components, case: Case) -> Difference | None:
    parts = implementation.parts
    decoder, layout = _decoder(parts, case), _layout(parts, case)
    encoder, backbone = parts.TextInputEncoder(decoder, case.ids, layout), decoder.backbone

    def one(how: str, context: Any) -> Iterator[Difference | None]:
        prepared = encoder.encode(context, backbone)
        whole, again = backbone.forward(prepared), backbone.forward_recomputed(prepared)
        yield equal(f"hidden states tracked, {how}", context.recording, again.hidden.tracked)
        yield from _states(f"hidden states, {how}", [whole.hidden], [again.hidden])
        yield from _states(f"inputs of blocks, {how}", whole.boundaries, again.boundaries)
        yield from _states(f"final norm, {how}", whole.final_norm, again.final_norm)
        kept = () if context.recording else whole.blocks
        yield equal(f"blocks told, {how}", len(kept), len(again.blocks))
        yield equal(f"blocks of a forward, {how}", case.config.layers, len(whole.blocks))
        for i, (block, other) in enumerate(zip(kept, again.blocks, strict=True)):
            yield from _states(f"steps of block {i}, {how}", block, other)

    contexts = (("recorded", parts.RECORDING), ("not recorded", parts.NO_GRAD))
    return first(d for context in contexts for d in one(*context))


def _states(what: str, expected: Any, actual: Any) -> Iterator[Difference | None]:
    """Tensors in a row or by name: the same bits, and tracked alike."""
    yield equal(f"{what}: names", *([*map(str, dict(_named(s)))] for s in (expected, actual)))
    for (name, one), (_, other) in zip(_named(expected), _named(actual), strict=True):
        yield first_difference(f"{what}: {name}", one.value, other.value)
        yield equal(f"{what}: {name} tracked", one.tracked, other.tracked)


def _named(tensors: Any) -> list[tuple[Any, Any]]:
    return [*(tensors.items() if hasattr(tensors, "items") else enumerate(tensors))]


def _bindings(implementation: Components, case: Case) -> Difference | None:
    parts = implementation.parts
    decoder, layout = _decoder(parts, case), _layout(parts, case)
    encoder, backbone = parts.TextInputEncoder(decoder, case.ids, layout), decoder.backbone

    def refusals(what: str, code: str, prepared: Any) -> Iterator[Difference | None]:
        asked = partial(prepared.validate, backbone)
        yield refused(f"validation after {what} is assigned", code, asked)
        for run in (backbone.forward, backbone.forward_recomputed):
            yield refused(f"a forward after {what} is assigned", code, partial(run, prepared))

    def steps() -> Iterator[Difference | None]:
        for context in (parts.RECORDING, parts.NO_GRAD):
            for parameter in (decoder.table, *backbone.parameters):
                table = parameter is decoder.table
                prepared = encoder.encode(context, backbone)
                prepared.validate(backbone)
                parameter.assign(parameter.value)
                code = f"binding/prepared-{'producer' if table else 'parameter'}"
                yield from refusals(parameter.name, code, prepared)
        backbone.forward(encoder.encode(parts.NO_GRAD, backbone))
        _valid_where_deep(parts)

    return first(steps())


def _valid_where_deep(parts: Any) -> None:
    """What is handed to many blocks is valid too."""
    sizes = dict.fromkeys(("vocabulary_size", "heads", "feed_forward_width", "max_positions"), 1)
    config = parts.DecoderConfig(model_width=2, layers=MANY_LAYERS, **sizes)
    decoder = parts.Decoder(config, parts.SplitMix64(0))
    encoder = parts.TextInputEncoder(decoder, [[0]])
    encoder.encode(parts.NO_GRAD, decoder.backbone).validate(decoder.backbone)


def _law(name: str, statement: str, check: Any, *faults: str, source: str) -> Law:
    return Law(
        id=f"modes.{name}",
        statement=statement,
        source=source,
        needs=("layers", "tape"),
        faults=faults,
        cases=mixed_cases,
        check=answered(check),
    )


LAWS = (
    _law(
        "no-grad",
        "Without recording the losses and all that a forward gives have the bits of recording, are"
        " tracked nowhere and begin no pass.",
        _losses,
        "loss-recorded-all-the-same",
        source="tape.md section 3",
    ),
    _law(
        "recomputed",
        "A recomputed forward has the states of a plain one and, recorded, no steps of blocks; not"
        " recorded it has every step, the same in every bit.",
        _recomputed,
        "recomputed-without-steps", "recomputation-keeps-all",
        source="numerics_vjp.md section 6",
    ),
    _law(
        "bindings",
        "What the text encoder hands over is refused once its table or a parameter of the backbone"
        " is assigned, whatever the value; encoded anew it runs.",
        _bindings,
        "encoder-declares-no-table",
        source="inputs.md section 3",
    ),
)  # fmt: skip
