"""The scalar decoder: logits, losses and gradients of a batch, row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arithmetic import EXACT, Arithmetic, Number
from .backward import Gradients, backward_row
from .forward import Cells, Matrix, Rotation, Row, Vector, forward_row, head_name, softmax
from .shapes import Config, Layout

__all__ = ["Result", "ScalarDecoder"]

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Logits [B][T][V], the loss of each valid cell, their mean and sum, and all gradients."""

    logits: list[Matrix]
    losses: Vector
    loss: Number
    loss_sum: Number
    gradients: Mapping[str, Any]  # of the mean, nested as the weights were given
    lookup_gradient: Matrix
    head_gradient: Matrix


class ScalarDecoder:
    """A decoder over nested lists of numbers; valid input only, nothing is checked.

    Key/value heads that several heads read, and a head with a matrix of its own, which the
    specification has not, are as `Config` states them.

    weights: name -> [rows][columns], a gain [D]; doubles, taken over exactly
    Source:  numerics.md, numerics_vjp.md
    """

    def __init__(
        self, config: Config, weights: Mapping[str, Any], arithmetic: Arithmetic = EXACT
    ) -> None:
        self.config, self.arithmetic = config, arithmetic
        self.weights = {
            name: [
                [arithmetic.number(float(v)) for v in row]
                for row in (weights[name] if len(shape) == 2 else [weights[name]])
            ]
            for name, shape in config.parameter_shapes().items()
        }
        self.rotation = Rotation(config, arithmetic)

    def logits(self, ids: Ids, layout: Layout | None = None) -> list[Matrix]:
        """[B][T][V]; -1 in inactive cells."""
        return [row.logits for row in self.rows(ids, layout)]

    def run(
        self,
        ids: Ids,
        targets: Ids,
        layout: Layout | None = None,
        valid: Sequence[Sequence[bool]] | None = None,
    ) -> Result:
        """Forward, loss over the valid cells (default: all active ones) and reverse pass."""
        return self.finished(self.rows(ids, layout), targets, valid)

    def finished(
        self, rows: list[Row], targets: Ids, valid: Sequence[Sequence[bool]] | None = None
    ) -> Result:
        """Loss and reverse pass of rows that have run forward."""
        a = self.arithmetic
        cells = [
            (b, t)
            for b, row in enumerate(rows)
            for t in range(row.cells.length)
            if valid is None or valid[b][t]
        ]
        chosen = [targets[b][t] for b, t in cells]
        picked = [rows[b].logits[t] for b, t in cells]
        losses, loss, loss_sum, slopes = nll(a, picked, chosen)
        blank = [a.number(0.0)] * self.config.vocabulary_size
        logits_grad = [[blank] * len(row.logits) for row in rows]
        for (b, t), slope in zip(cells, slopes, strict=True):
            logits_grad[b][t] = slope
        gradients = Gradients(a, self.weights)
        for row, upstream in zip(rows, logits_grad, strict=True):
            backward_row(a, self.weights, self.rotation, row, upstream, gradients)
        shapes = self.config.parameter_shapes()
        return Result(
            logits=[row.logits for row in rows],
            losses=losses,
            loss=loss,
            loss_sum=loss_sum,
            gradients={
                name: value if len(shapes[name]) == 2 else value[0]
                for name, value in gradients.finished().items()
            },
            lookup_gradient=gradients.lookup,
            head_gradient=gradients.sums[head_name(self.weights)],
        )

    def rows(self, ids: Ids, layout: Layout | None = None) -> list[Row]:
        """The rows, run forward, with everything that their reverse pass reads."""
        layout = layout or Layout.full(len(ids), len(ids[0]))
        cells = [
            Cells(
                ids=ids[b],
                length=layout.lengths[b],
                starts=layout.range_starts[b],
                positions=layout.positions[b],
            )
            for b in range(len(ids))
        ]
        return [
            forward_row(self.arithmetic, self.config, self.weights, self.rotation, row)
            for row in cells
        ]


def nll(
    a: Arithmetic, rows: Matrix, targets: Sequence[int]
) -> tuple[Vector, Number, Number, Matrix]:
    """Losses, mean, raw sum, and the mean's logit gradients. Source: numerics.md section 8"""
    groups = a.number(float(len(rows)))
    factor = a.number(1.0) / groups
    losses, slopes = [], []
    total, scaled = a.number(0.0), a.number(0.0)
    for row, target in zip(rows, targets, strict=True):
        probabilities, largest, tail = softmax(a, row)
        log_sum, gap = a.log1p(tail), largest - row[target]
        share = gap / groups if a.is_finite(gap) else largest / groups - row[target] / groups
        scaled = scaled + (share + log_sum / groups)
        losses.append(gap + log_sum)
        total = total + losses[-1]
        slopes.append(
            [
                a.clean((p - a.number(1.0) if c == target else p) * factor)
                for c, p in enumerate(probabilities)
            ]
        )
    finite = all(a.is_finite(loss) for loss in losses) and a.is_finite(total)
    return losses, a.clean(total / groups if finite else scaled), total, slopes
