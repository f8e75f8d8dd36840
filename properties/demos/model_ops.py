"""The model-ops report: a repeated-token chain, forward and backward, and its checks.

The chain puts the activation straight into the loss: an exercise, not a decoder.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from logitproof.core import RECORDING, Parameter, ops

from . import handwritten, lines, model_checks
from .agreement import require_close

Facts = dict[str, Any]
Array = np.ndarray[Any, Any]

EMBEDDINGS = np.array([[2.0, 2.0], [1.0, -1.0], [-1.0, 1.0]])
IDS = (1, 1, 1, 2)
WEIGHTS = np.array([[1.0, -1.0], [1.0, -1.0]])
TARGETS = (0, 0, 0, 1)
CLASS_AXIS = 1

HANDWRITTEN_TOLERANCE = 1e-12  # absolute; the handwritten form rounds in another order
HANDOFF = "chapter 17 handoff: initialize trainable values reproducibly"


def report() -> Facts:
    """The computed facts; raises Disagreement unless every comparison of them holds."""
    chain = _Chain.run()
    return {
        "demo": "model-ops",
        "values": chain.values(),
        "handwritten": {
            "tolerance": HANDWRITTEN_TOLERANCE,
            "largest_differences": chain.compared_with_handwritten(),
        },
        "scalar_probes": model_checks.scalar_probes(),
        "gradient_checks": model_checks.gradient_checks(),
        "typed_errors": model_checks.typed_errors(),
        "backward_pass": chain.backward_pass(),
        "occurrences": _occurrences(),
    }


def report_lines(facts: Facts) -> list[str]:
    """The 18 lines."""
    return [
        *map(_value_line, facts["values"]),
        "scalar probes: " + " | ".join(map(_probe_text, facts["scalar_probes"])),
        f"gradcheck: {' | '.join(check['name'] for check in facts['gradient_checks']['checks'])}; "
        f"pass={lines.truth(facts['gradient_checks']['pass'])}",
        f"typed errors: {' | '.join(error['name'] for error in facts['typed_errors']['errors'])}; "
        f"gradients unchanged={lines.truth(facts['typed_errors']['gradients_unchanged'])}",
        HANDOFF,
    ]


def trace_lines(facts: Facts) -> list[str]:
    """The nodes and edges of the backward pass, then where each embedding row was used."""
    recorded = facts["backward_pass"]
    return [
        "TRACE model-ops-v1 BEGIN",
        *map(_node_line, recorded["nodes"]),
        *map(_edge_line, recorded["edges"]),
        *map(_occurrence_line, facts["occurrences"]),
        "TRACE model-ops-v1 END",
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chain:
    """The nodes of the graph, and the record of its one backward pass."""

    embeddings: Parameter
    weights: Parameter
    gathered: Any
    preactivations: Any
    activated: Any
    log_probabilities: Any
    loss: Any
    trace: Any

    @classmethod
    def run(cls) -> "_Chain":
        embeddings = Parameter("embeddings", EMBEDDINGS)
        weights = Parameter("projection.weight", WEIGHTS)
        gathered = RECORDING.apply(ops.gather_rows, embeddings, indices=IDS, shape=(len(IDS),))
        preactivations = RECORDING.apply(ops.matmul, gathered, weights)
        activated = RECORDING.apply(ops.silu, preactivations)
        displayed = RECORDING.apply(ops.log_softmax, activated, axis=CLASS_AXIS)
        loss = RECORDING.apply(ops.indexed_mean_nll, activated, axis=CLASS_AXIS, targets=TARGETS)
        return cls(
            embeddings=embeddings,
            weights=weights,
            gathered=gathered,
            preactivations=preactivations,
            activated=activated,
            log_probabilities=displayed,
            loss=loss,
            trace=loss.backward_with_trace(),
        )

    def values(self) -> list[Facts]:
        """What the value lines print, in their order."""
        return [
            _tensor("embeddings", self.embeddings.value),
            {"label": "token IDs", "ids": list(IDS)},
            _tensor("gather rows", self.gathered.value),
            _tensor("projection weights", self.weights.value),
            _tensor("projection preactivations", self.preactivations.value),
            _tensor("SiLU", self.activated.value),
            _tensor(f"log-softmax axis={CLASS_AXIS}", self.log_probabilities.value),
            {"label": "targets", "ids": list(TARGETS)},
            _tensor("indexed mean NLL", self.loss.value),
            _tensor("target-logit gradient", self.trace.adjoint("silu")),
            _tensor("through SiLU", self.trace.adjoint("matmul")),
            _tensor("matmul left gradient", self.trace.adjoint("gather_rows")),
            _tensor("embedding scatter-add", self.embeddings.gradient),
            _tensor("matmul right gradient", self.weights.gradient),
        ]

    def compared_with_handwritten(self) -> dict[str, float]:
        """The largest difference of each of the ten results."""
        by_hand = handwritten.model_backward(EMBEDDINGS.tolist(), IDS, WEIGHTS.tolist(), TARGETS)
        taped = {
            "gathered": self.gathered.value,
            "preactivations": self.preactivations.value,
            "activated": self.activated.value,
            "log_probabilities": self.log_probabilities.value,
            "loss": self.loss.value,
            "loss_input_gradient": self.trace.adjoint("silu"),
            "matmul_output_gradient": self.trace.adjoint("matmul"),
            "gathered_gradient": self.trace.adjoint("gather_rows"),
            "embedding_gradient": self.embeddings.gradient,
            "weight_gradient": self.weights.gradient,
        }
        return {
            name: require_close(taped[name], value, tolerance=HANDWRITTEN_TOLERANCE, what=name)
            for name, value in asdict(by_hand).items()
        }

    def backward_pass(self) -> Facts:
        """Nodes in topology order, edges in visit order."""
        return {
            "nodes": [
                {
                    "index": node.index,
                    "op": node.op,
                    "shape": list(node.shape),
                    "tracked": node.tracked,
                    "parameter": node.parameter,
                    "adjoint": node.adjoint.reshape(-1).tolist(),
                }
                for node in self.trace.nodes
            ],
            "edges": [
                {
                    "reverse_index": edge.reverse_index,
                    "child": edge.child,
                    "parent": edge.parent,
                    "operand": edge.operand,
                    "contribution": edge.contribution.reshape(-1).tolist(),
                }
                for edge in self.trace.edges
            ],
        }


def _occurrences() -> list[Facts]:
    """The flat positions that use each embedding row."""
    return [
        {"row": row, "flat_positions": [p for p, i in enumerate(IDS) if i == row]}
        for row in range(len(EMBEDDINGS))
    ]


def _tensor(label: str, array: Array) -> Facts:
    return {"label": label, "shape": list(array.shape), "values": array.reshape(-1).tolist()}


def _value_line(fact: Facts) -> str:
    if "ids" in fact:
        return f"{fact['label']}: {fact['ids']}"
    return (
        f"{fact['label']}: shape={lines.shape(fact['shape'])} "
        f"values={lines.numbers(fact['values'])}"
    )


def _probe_text(probe: Facts) -> str:
    value, derivative = lines.number(probe["value"]), lines.number(probe["derivative"])
    return f"{probe['name']}->({value}, {derivative})"


def _node_line(node: Facts) -> str:
    return (
        f"NODE index={node['index']} op={node['op']} shape={lines.shape(node['shape'])} "
        f"tracked={lines.truth(node['tracked'])} parameter={node['parameter'] or 'none'} "
        f"adjoint={lines.numbers(node['adjoint'])}"
    )


def _edge_line(edge: Facts) -> str:
    return (
        f"EDGE reverse-index={edge['reverse_index']} child={edge['child']} "
        f"parent={edge['parent']} operand={edge['operand']} "
        f"contribution={lines.numbers(edge['contribution'])}"
    )


def _occurrence_line(occurrence: Facts) -> str:
    positions = lines.integers(occurrence["flat_positions"])
    return f"OCCURRENCE row={occurrence['row']} flat-positions={positions}"
