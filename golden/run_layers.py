"""Golden cases of layers, difference quotients and limits, done by the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from logitproof.core import RECORDING, Parameter, ops
from logitproof.core.attention import Attention, scaled_dot_product
from logitproof.core.gradcheck import central_difference, compare, compare_sides
from logitproof.core.layers import Linear, RmsNorm, SwiGlu, add_residual
from logitproof.core.limits import Demand, Demands
from logitproof.core.limits import compare as limit_reasons
from logitproof.core.planner import ENVELOPE_BYTES
from logitproof.core.profiles import EXECUTABLE, profile
from logitproof.core.rope import RotaryTable
from logitproof.core.sizes import UNKNOWN
from logitproof.core.softmax import RowStatistics
from logitproof.core.tape import Tensor, constant

from .derive import values
from .derive.layers import constants
from .load import Case, cells

__all__ = ["KINDS"]

Object = dict[str, Any]
Parameters = dict[str, Parameter]
Tensors = dict[str, Tensor]


def _written(array: Any) -> Object:
    array = np.asarray(array)
    return values.doubles(array.shape, array.reshape(-1).tolist())


def _array(held: Object) -> Any:
    return np.array(cells(held)).reshape(held["shape"])


# --- layers ----------------------------------------------------------------------------------


def _linear(given: Parameters, _: Object) -> Tensors:
    layer = Linear.from_parameters(given["weight"], given.get("bias"))
    return {"output": layer.forward(given["x"])}


def _rms_norm(given: Parameters, fixed: Object) -> Tensors:
    return RmsNorm.from_gain(given["gain"], fixed["epsilon"]).inspect(given["x"])


def _swiglu(given: Parameters, _: Object) -> Tensors:
    gate, up, down = (Linear.from_parameters(given[name]) for name in ("gate", "up", "down"))
    activated = RECORDING.apply(ops.silu, gate.forward(given["x"]))
    product = RECORDING.apply(ops.mul, activated, up.forward(given["x"]))
    return {"product": product, "output": SwiGlu(gate, up, down).forward(given["x"])}


def _residual(given: Parameters, _: Object) -> Tensors:
    branch = Linear.from_parameters(given["weight"]).forward(given["x"])
    output = add_residual(given["x"], branch, context=RECORDING, what="residual")
    return {"branch": branch, "output": output}


def _attention(given: Parameters, _: Object) -> Tensors:
    steps = scaled_dot_product(given["query"], given["key"], given["value"])
    return {**steps, "output": steps["mix"]}


def _rotary(given: Parameters, fixed: Object) -> Tensors:
    T, width = given["x"].shape
    table = RotaryTable(width, fixed["offset"] + T, fixed["base"])
    turned = table.rotate(given["x"], fixed["offset"])
    columns = RECORDING.apply(ops.transpose, turned, axes=(0, 1))
    products = RECORDING.apply(ops.matmul, turned, columns)
    return {"frequencies": constant(table.frequencies), "output": turned, "products": products}


def _multi_head(given: Parameters, fixed: Object) -> Tensors:
    layer = Attention.from_parameters(
        *(given[role] for role in ("query", "key", "value", "output")),
        heads=fixed["heads"],
        max_positions=fixed["capacity"],
        rope_base=fixed["base"],
    )
    return layer.inspect(given["x"])


def _softmax(given: Parameters, _: Object) -> Tensors:
    logits = given["logits"]
    statistics = RowStatistics(logits.value)
    return {
        "probabilities": constant(statistics.probabilities()),
        "log_probabilities": RECORDING.apply(ops.log_softmax, logits, axis=1),
        "log_sum_exp": constant(statistics.maximum + statistics.log_sum),
    }


LAYERS: dict[str, Callable[[Parameters, Object], Tensors]] = {
    "linear": _linear,
    "rms-norm": _rms_norm,
    "swiglu": _swiglu,
    "residual": _residual,
    "rotary": _rotary,
    "attention": _attention,
    "multi-head": _multi_head,
    "softmax": _softmax,
}


def _layer(case: Case) -> Object:
    """The names asked for; gradients are those of the sum of upstream times output."""
    given = {name: Parameter(name, _array(a)) for name, a in case.input["operands"].items()}
    steps = LAYERS[case.setup["layer"]](given, constants(case))
    asked = {**case.expect, **case.expect.get("true", {})}
    found: Object = {}
    if "upstream" in case.input:
        upstream = constant(_array(case.input["upstream"]))
        weighted = RECORDING.apply(ops.mul, steps["output"], upstream)
        flat = RECORDING.apply(ops.reshape, weighted, shape=(weighted.value.size,))
        steps["objective"] = RECORDING.apply(ops.sum, flat, axis=0)
        steps["objective"].backward()
        if "gradients" in asked:
            found["gradients"] = {n: _written(given[n].gradient) for n in asked["gradients"]}
    return {"values": {name: _written(steps[name].value) for name in asked["values"]}, **found}


# --- difference quotients --------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "square": lambda x: x * x,
    "identity": lambda x: x,
    "magnitude": abs,
}


def _slope(case: Case) -> Object:
    given = {name: cells(value)[0] for name, value in case.input.items()}
    stencil = central_difference(FUNCTIONS[case.setup["of"]], given["point"], given["step"])
    names = ("minus", "centre", "plus", "left", "right", "derivative", "spacing_minus",
             "spacing_plus", "weight_left", "weight_right")  # fmt: skip
    found = {name: getattr(stencil, name) for name in names}
    if "tolerance" in given:
        sides = compare_sides(stencil, given["tolerance"])
        found |= {"gap": abs(sides.analytic - sides.numeric), "gap_error": sides.scaled_error}
    if "candidate" in given:
        compared = compare(given["candidate"], stencil.derivative, given["tolerance"])
        found["candidate_error"] = compared.scaled_error
    return {"values": {name: _written(found[name]) for name in case.expect["true"]["values"]}}


# --- limits ----------------------------------------------------------------------------------


def _profile(case: Case) -> Object:
    """Ceilings of a profile, with the envelope that every host plan adds."""
    held = profile(case.setup["profile"])
    facts = {"runtime_envelope": ENVELOPE_BYTES}
    names = case.expect["facts"]
    return {"facts": {n: facts[n] if n in facts else getattr(held, n) for n in names}}


def _demand(case: Case) -> Object:
    """What speaks against bytes on the device of a profile that would otherwise run."""
    held = replace(profile(case.setup["profile"]), state=EXECUTABLE, partitions={})
    if "cap" in case.input:
        held = replace(held, device=case.input["cap"])
    terms = tuple(UNKNOWN if term == "unknown" else term for term in case.input["terms"])
    reasons = limit_reasons(Demands(device=Demand(terms=terms)), held)
    told = [{"code": str(r.code), "what": r.what, **_sizes(r)} for r in reasons]
    return {"reasons": told}


def _sizes(reason: Any) -> Object:
    excess: Object = {"required": reason.required, "limit": reason.limit}
    if isinstance(reason.required, int):
        excess["excess"] = reason.required - reason.limit
    return excess


KINDS: dict[str, Callable[[Case], Object]] = {
    "layer": _layer,
    "slope": _slope,
    "profile": _profile,
    "demand": _demand,
}
