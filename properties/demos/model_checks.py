"""The checks of the model-ops report: scalar probes, central differences, typed errors."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logitproof.core import NO_GRAD, RECORDING, Code, Parameter, constant, ops
from logitproof.core.gradcheck import GradientCheck, check_gradient

from .agreement import refusal_facts, require, same_bits

Facts = dict[str, Any]
Array = np.ndarray[Any, Any]
Objective = Callable[..., Any]  # context and operands to a rank-0 tensor

STEP, TOLERANCE, SAMPLES = 1e-6, 2e-6, 4  # the tolerance is of scaled errors

# Name, operation, point.
_PROBES = (("exp(0)", ops.exp, 0.0), ("log(1)", ops.log, 1.0), ("silu(0)", ops.silu, 0.0))


def scalar_probes() -> list[Facts]:
    """Value and derivative of three functions at one point each."""
    return [_scalar_probe(*probe) for probe in _PROBES]


def _scalar_probe(name: str, op: Callable[..., Any], point: float) -> Facts:
    parameter = Parameter("point", np.array(point))
    output = RECORDING.apply(op, parameter)
    output.backward()
    return {"name": name, "value": float(output.value), "derivative": float(parameter.gradient)}


LEFT = np.array([[0.4, -0.7], [1.2, 0.3]])
RIGHT = np.array([[0.2, -0.4], [0.9, 0.5]])
ROWS = np.array([[0.2, -0.4], [0.7, 1.1], [-0.3, 0.6]])
SIGNED = np.array([-0.8, 0.2, 1.1])
POSITIVE = np.array([0.4, 1.1, 2.3])
LOGITS = np.array([[0.7, -0.4, 1.1], [-0.2, 0.3, 0.8]])
LOGIT_WEIGHTS = np.array([[0.2, -0.5, 0.7], [1.1, -0.4, 0.3]])


def _total(context: Any, x: Any) -> Any:
    """The sum of all elements, first axis by first axis."""
    while x.shape:
        x = context.apply(ops.sum, x, axis=0)
    return x


def _summed(op: Callable[..., Any], **arguments: Any) -> Objective:
    return lambda context, *operands: _total(context, context.apply(op, *operands, **arguments))


def _weighted_log_softmax(context: Any, logits: Any) -> Any:
    log_probabilities = context.apply(ops.log_softmax, logits, axis=1)
    return _total(context, context.apply(ops.mul, log_probabilities, constant(LOGIT_WEIGHTS)))


# Name, operands, which of them is probed, objective.
GRADIENT_CHECKS: tuple[tuple[str, Sequence[Array], int, Objective], ...] = (
    ("matmul-left", (LEFT, RIGHT), 0, _summed(ops.matmul)),
    ("matmul-right", (LEFT, RIGHT), 1, _summed(ops.matmul)),
    ("gather_rows", (ROWS,), 0, _summed(ops.gather_rows, indices=(2, 1, 2), shape=(3,))),
    ("exp", (SIGNED,), 0, _summed(ops.exp)),
    ("log", (POSITIVE,), 0, _summed(ops.log)),
    ("silu", (SIGNED,), 0, _summed(ops.silu)),
    ("log_softmax", (LOGITS,), 0, _weighted_log_softmax),
    ("indexed_mean_nll", (LOGITS,), 0, _summed(ops.indexed_mean_nll, axis=1, targets=(2, 0))),
)


def gradient_checks() -> Facts:
    """Tape gradients beside central differences at sampled coordinates."""
    checks = []
    for name, operands, probed, objective in GRADIENT_CHECKS:
        checked = _checked(operands, probed, objective)
        require(checked.passed, f"the gradient of {name} agrees with central differences")
        checks.append(
            {
                "name": name,
                "coordinates": [coordinate.at for coordinate in checked.coordinates],
                "largest_scaled_error": checked.largest_scaled_error,
                "pass": checked.passed,
            }
        )
    return {
        "step": STEP,
        "tolerance": TOLERANCE,
        "checks": checks,
        "pass": all(check["pass"] for check in checks),
    }


def _checked(operands: Sequence[Array], probed: int, objective: Objective) -> GradientCheck:
    def tensors(leaf: Any) -> list[Any]:
        return [leaf if i == probed else constant(x) for i, x in enumerate(operands)]

    parameter = Parameter("probed", operands[probed])
    objective(RECORDING, *tensors(parameter)).backward()
    return check_gradient(
        lambda point: float(objective(NO_GRAD, *tensors(constant(point))).value),
        operands[probed],
        parameter.gradient,
        step=STEP,
        tolerance=TOLERANCE,
        samples=SAMPLES,
    )


def typed_errors() -> Facts:
    """Four refused calls, each with the gradient it left unchanged."""
    table = Parameter("table", np.array([[1.0, 2.0], [3.0, 4.0]]))
    logits = Parameter("logits", np.array([[1.0, -1.0], [0.5, -0.5]]))
    empty = Parameter("empty", np.zeros((0, 2)))
    scalar = Parameter("scalar", np.array(sys.float_info.max))
    for parameter in (table, logits, scalar):
        _total(RECORDING, parameter).backward()
    errors = [
        _typed_error(
            "invalid-id",
            table,
            lambda: RECORDING.apply(ops.gather_rows, table, indices=(2,), shape=(1,)),
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            {"position": 0, "index": 2, "rows": 2},
        ),
        _typed_error(
            "invalid-target",
            logits,
            lambda: RECORDING.apply(ops.indexed_mean_nll, logits, axis=1, targets=(0, 2)),
            Code.TARGET_OUT_OF_BOUNDS,
            {"group": 1, "target": 2, "classes": 2},
        ),
        _typed_error(
            "empty-targets",
            empty,
            lambda: RECORDING.apply(ops.indexed_mean_nll, empty, axis=1, targets=()),
            Code.EMPTY_TARGETS,
            {},
        ),
        _typed_error(
            "exp-overflow",
            scalar,
            lambda: RECORDING.apply(ops.exp, scalar),
            Code.NON_FINITE_FORWARD,
            {"op": "exp", "index": 0, "value": float("inf")},
        ),
    ]
    return {"errors": errors, "gradients_unchanged": all(e["gradient_unchanged"] for e in errors)}


def _typed_error(
    name: str, parameter: Parameter, call: Callable[[], object], code: Code, fields: Facts
) -> Facts:
    before = parameter.gradient
    facts = refusal_facts(call)
    require(facts.get("code") == code, f"{name} is refused as {code}")
    require(fields.items() <= facts.items(), f"the refusal of {name} carries {fields}")
    unchanged = same_bits(before, parameter.gradient)
    require(unchanged, f"{name} leaves the gradient of {parameter.name} unchanged")
    shown = {key: value if isinstance(value, int) else str(value) for key, value in fields.items()}
    return {"name": name, "code": str(code), "fields": shown, "gradient_unchanged": unchanged}
