"""Golden cases done by the core: what comes out, in the form in which the files say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    BpeTokenizer,
    Decoder,
    DecoderConfig,
    DecodeSession,
    Parameter,
    PreparedDecoderInput,
    Refusal,
    SequenceLayout,
    SplitMix64,
    TextInputEncoder,
    TextOutputHead,
    floats,
    ops,
)
from logitproof.core.config import DecoderBlockConfig
from logitproof.core.fresh import fresh_decoder
from logitproof.core.kernels import ORDERED, Kernel
from logitproof.core.layers import Linear
from logitproof.core.rope import RotaryTable
from logitproof.core.tokenizer import learn_merges
from logitproof.properties.invalid.registry import BOUNDARIES

from . import run_figures, run_layers, run_records
from .derive import values
from .figures import Figures
from .load import Case, cells

__all__ = ["outcome"]

Array = np.ndarray[Any, Any]
KERNEL: Kernel | None = ORDERED  # of every decoder of a case; None for its steps
Object = dict[str, Any]
STAGE_DIGITS = 16


def outcome(case: Case, held: Figures | None = None) -> Object:
    """What the core answers: the values asked for, or its refusal.

    held: the figures that stand beside the cases, by default those shipped
    """
    try:
        with np.errstate(all="ignore"):
            if case.kind == "figure":
                return run_figures.figure(case, held=held)
            return KINDS[case.kind](case)
    except Refusal as refusal:
        return {"refusal": {"code": str(refusal.code), "fields": _plain(refusal.facts())}}


def _plain(value: Any) -> Any:
    """Facts of a refusal as the files hold them."""
    if isinstance(value, Refusal):
        return {"code": str(value.code), "what": value.what}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return values.doubles((), [value])
    if isinstance(value, bool | int | str) or value is None:
        return str(value) if isinstance(value, str) else value
    return repr(value)


def numbers(held: Any) -> Any:
    """Arrays as numpy has them; everything else as it is."""
    if isinstance(held, dict) and "shape" in held:
        name, dtype = ("i64", np.int64) if "i64" in held else ("f64", np.float64)
        return np.array(cells(held, name), dtype=dtype).reshape(held["shape"])
    return held


def _written(array: Any) -> Object:
    array = np.asarray(array)
    return values.doubles(array.shape, array.reshape(-1).tolist())


def _digest(arrays: Iterable[Any]) -> str:
    return values.digest(x for array in arrays for x in np.asarray(array).reshape(-1).tolist())


# --- functions and operations ----------------------------------------------------------------


def _function(case: Case) -> Object:
    function = getattr(floats, case.setup["name"])
    arguments = numbers(case.input["arguments"])
    base = case.setup.get("base")
    found = function(arguments) if base is None else function(cells(base)[0], arguments)
    return {"value": _written(found)}


def _operation(case: Case) -> Object:
    """On the tape, so that its own refusals count; the reverse rule as the operation gives it."""
    operands = [numbers(operand) for operand in case.input["operands"]]
    arguments = {name: numbers(value) for name, value in case.input["arguments"].items()}
    operation = getattr(ops, case.setup["op"])
    parameters = [Parameter(f"operand{i}", operand) for i, operand in enumerate(operands)]
    result = RECORDING.apply(operation, *parameters, **arguments)
    if "upstream" not in case.input:
        return {"value": _written(result.value)}
    upstream = numbers(case.input["upstream"])
    parts = operation(*[p.value for p in parameters], **arguments)[1].rule(upstream)
    return {"value": _written(result.value), "contributions": [_written(part) for part in parts]}


# --- drawing, turning, laying out ------------------------------------------------------------


def _generator(case: Case) -> Object:
    rng, given, found = SplitMix64(case.input["seed"]), case.input, Object()
    draws = case.setup["draws"]
    if draws == "words":
        found["words"] = [f"{rng.next_u64():016x}" for _ in range(given["count"])]
    elif draws == "uniforms":
        found["uniforms"] = _written([rng.uniform() for _ in range(given["count"])])
    elif draws == "matrix":
        layer = Linear.new("drawn", given["fan_in"], given["fan_out"], False, rng)
        found["matrix"] = _written(layer.weight.value)
    else:
        config = DecoderConfig(**given["config"])
        made = Decoder(config, rng) if draws == "drawn" else fresh_decoder(config, rng)[0]
        found["parameters_digest"] = _digest(p.value for p in made.parameters.values())
    return {**found, "final_state": f"{rng.state:016x}"}


def _rotation(case: Case) -> Object:
    table = RotaryTable(case.setup["width"], case.setup["capacity"], cells(case.setup["base"])[0])
    parts = ("frequencies", "cosines", "sines")
    return {name: _written(getattr(table, name)) for name in parts}


def _layout(case: Case) -> Object:
    given, form = case.input, case.setup["form"]
    if form == "full":
        made = SequenceLayout.full(given["rows"], given["tokens"])
    elif form == "padded":
        made = SequenceLayout.padded(given["lengths"], given["tokens"])
    elif form == "packed":
        made = SequenceLayout.packed(given["segments"], given["tokens"])
    else:
        made = SequenceLayout(**given["arrays"])
    return {name: getattr(made, name).tolist() for name in ("lengths", "range_starts", "positions")}


def _config(case: Case) -> Object:
    kind = DecoderConfig if case.setup["of"] == "decoder" else DecoderBlockConfig
    fields = {name: _scalar(value) for name, value in case.input["fields"].items()}
    kind(**fields)
    return {}


def _scalar(value: Any) -> Any:
    return cells(value)[0] if isinstance(value, dict) else value


# --- decoders --------------------------------------------------------------------------------


def decoder_of(case: Case) -> Decoder:
    """The decoder of a case's setup over parameters of its own."""
    fields = {name: _scalar(value) for name, value in case.setup["config"].items()}
    if "seed" in case.setup:
        return Decoder(DecoderConfig(**fields), SplitMix64(case.setup["seed"]), kernel=KERNEL)
    parameters = [
        Parameter(name, numbers(weight)) for name, weight in case.setup["weights"].items()
    ]
    return Decoder.from_parameters(DecoderConfig(**fields), parameters, kernel=KERNEL)


def _decoder(case: Case) -> Object:
    decoder, given = decoder_of(case), case.input
    layout = SequenceLayout(**_arrays(given["layout"])) if "layout" in given else None
    ids = given["ids"]
    if "targets" not in given:
        return {"logits": _written(decoder.forward(ids, layout=layout).logits.value)}
    arguments: Object = {"layout": layout, "valid": given.get("valid")}
    if given.get("sum"):
        return {"loss_sum": _written(decoder.loss_sum(ids, given["targets"], **arguments).value)}
    loss = decoder.loss(ids, given["targets"], **arguments)
    loss.backward()
    found: Object = {
        "logits": _written(decoder.forward(ids, layout=layout, context=NO_GRAD).logits.value),
        "loss": _written(loss.value),
        "gradients": {name: _written(p.gradient) for name, p in decoder.parameters.items()},
    }
    found["loss_sum"] = _written(decoder.loss_sum(ids, given["targets"], **arguments).value)
    if "lookup" in case.expect:
        found["lookup"], found["head"] = map(_written, _parts(decoder, ids, given["targets"]))
    if "stages" in case.expect:
        found["stages"] = stages(decoder, ids, layout)
    return found


def _arrays(layout: Object) -> Object:
    return {name: np.array(value, dtype=np.int64) for name, value in layout.items()}


def _parts(decoder: Decoder, ids: Any, targets: Any) -> list[Array]:
    """The table's gradient through the lookup alone, and through the head alone."""
    backbone, table = decoder.backbone, decoder.table
    prepared = TextInputEncoder(decoder, ids).encode(RECORDING, backbone)
    detached = PreparedDecoderInput(
        backbone, RECORDING, prepared.embeddings.detach(), prepared.layout, "detached text lookup"
    )
    found = []
    for held, head in ((prepared, table.detach()), (detached, table)):
        for parameter in decoder.parameters.values():
            parameter.zero_gradient()
        logits = TextOutputHead(head).forward(RECORDING, backbone.forward(held).hidden)
        flat = np.array(targets).reshape(-1)
        RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=flat).backward()
        found.append(table.gradient)
    return found


def stages(decoder: Decoder, ids: Any, layout: SequenceLayout | None) -> dict[str, str]:
    """Digests of what lies between ids and logits, in the order of computation."""
    backbone = decoder.backbone
    prepared = TextInputEncoder(decoder, ids, layout).encode(NO_GRAD, backbone)
    output = backbone.forward(prepared)
    found: dict[str, Any] = {}
    for layer, (block, steps) in enumerate(zip(backbone.blocks, output.blocks, strict=True)):
        residual = steps["attention_residual"]
        norms = {
            "attention_norm": block.attention_norm.inspect(
                output.boundaries[layer], context=NO_GRAD
            ),
            "ffn_norm": block.ffn_norm.inspect(residual, context=NO_GRAD),
        }
        gate = block.ffn.gate.forward(norms["ffn_norm"]["output"], context=NO_GRAD)
        held = {
            **{f"attention_norm.{n}": norms["attention_norm"][n] for n in NORM_STEPS},
            **{f"attention.{n}": steps[n] for n in ATTENTION_STEPS},
            "attention.residual": residual,
            **{f"ffn_norm.{n}": norms["ffn_norm"][n] for n in NORM_STEPS},
            "ffn.gate": gate,
            "ffn.activated": NO_GRAD.apply(ops.silu, gate),
            "ffn.up": block.ffn.up.forward(norms["ffn_norm"]["output"], context=NO_GRAD),
            "output": steps["output"],
        }
        found.update({f"blocks.{layer}.{name}": tensor for name, tensor in held.items()})
    found.update({f"final_norm.{n}": output.final_norm[n] for n in NORM_STEPS})
    return {name: _digest([tensor.value])[:STAGE_DIGITS] for name, tensor in found.items()}


NORM_STEPS = ("inverse_rms", "output")
ATTENTION_STEPS = ("query", "key", "value", "scores", "probabilities")


# --- sessions and chains ---------------------------------------------------------------------


def _session(case: Case) -> Object:
    logits, positions = [], []
    with DecodeSession(decoder_of(case)) as session:
        for call, *arguments in case.input["script"]:
            output = getattr(session, call)(*arguments)
            if output is not None:
                logits.append(output.logits)
                positions.append(output.position)
        counters = session.work
        work = {name: getattr(counters, name) for name in case.expect.get("work", {})}
        length = session.length
    shown = {"logits": _written(np.array(logits))} if logits else {}
    return {**shown, "positions": positions, "length": length, "work": work}


def _decode_chain(case: Case) -> Object:
    decoder = decoder_of(case)
    V, C = decoder.config.vocabulary_size, decoder.config.max_positions
    token, found = case.input["first"], []
    with DecodeSession(decoder) as session:
        for step in range(case.input["steps"]):
            if session.length == C:
                session.reset()
            newest = session.decode(token) if session.length else session.prefill([token])
            found.append(newest.logits)
            token = (int(newest.logits.argmax()) + step) % V
    return {"digest": _digest(found)}


def _update_chain(case: Case) -> Object:
    decoder, given = decoder_of(case), case.input
    factor = cells(given["factor"])[0]
    for _ in range(given["steps"]):
        for parameter in decoder.parameters.values():
            parameter.zero_gradient()
        decoder.loss(given["ids"], given["targets"]).backward()
        for parameter in decoder.parameters.values():
            parameter.assign(parameter.value - factor * parameter.gradient)
    return {"digest": _digest(p.value for p in decoder.parameters.values())}


# --- texts and refusals ----------------------------------------------------------------------


def _tokenizer(case: Case) -> Object:
    tokenizer = BpeTokenizer(case.setup["merges"])
    call, argument = case.setup["call"], case.input["argument"]
    if call.startswith("decode"):
        result = getattr(tokenizer, call)(argument)
        return {"result": result.hex() if isinstance(result, bytes) else result}
    data = bytes.fromhex(argument)
    if call == "encode_document":
        return {"result": tokenizer.encode_document(data)}
    traced = tokenizer.encode_with_trace(data)
    passes = [{"rank": p.rank, "replacements": p.replacements, "after": list(p.after)}
              for p in traced.passes]  # fmt: skip
    sizes = {"vocabulary_size": tokenizer.vocabulary_size}
    return {"result": tokenizer.encode(data), "passes": passes, **sizes}


def _learned(case: Case) -> Object:
    sequences: Sequence[bytes] = [bytes.fromhex(s) for s in case.input["sequences"]]
    return {"merges": [list(pair) for pair in learn_merges(sequences, case.input["rounds"])]}


def _boundary(case: Case) -> Object:
    """A refusal that needs live objects: the near miss of these names."""
    misses = [miss for boundary in BOUNDARIES if boundary.name == case.setup["boundary"]
              for miss in boundary.near_misses(upto=1)
              if miss.expected.name == case.setup["fault"]]  # fmt: skip
    (miss,) = misses
    miss.boundary.call(miss.situation())
    return {}


KINDS: dict[str, Callable[[Case], Object]] = {
    "function": _function,
    "operation": _operation,
    "generator": _generator,
    "rotary-table": _rotation,
    "layout": _layout,
    "config": _config,
    "decoder": _decoder,
    "session": _session,
    "decode-chain": _decode_chain,
    "update-chain": _update_chain,
    "tokenizer": _tokenizer,
    "learned-merges": _learned,
    "boundary": _boundary,
    "figure": run_figures.figure,
    **run_layers.KINDS,
    **run_records.KINDS,
}
