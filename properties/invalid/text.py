"""Boundaries of the text encoder, the model call and its losses."""

from __future__ import annotations

import numpy as np

from logitproof.core import NO_GRAD, SequenceLayout, TextInputEncoder
from logitproof.core.codes import Code
from logitproof.core.text import LOSS_ORDER, TOKEN_ORDER

from .arguments import kind_fault
from .boundary import Boundary, Fault, Situation, fault
from .hand_over import reason
from .making import decoder

__all__ = ["BOUNDARIES"]


def _build() -> Situation:
    """Two rows of 3 cells; cell (0, 2) is inactive, cell (1, 1) enters no loss."""
    return Situation(
        ids=np.array([[1, 2, -1], [3, 0, 4]]),
        targets=np.array([[2, 0, -1], [0, -1, 4]]),
        valid=np.array([[True, True, False], [True, False, True]]),
        lengths=[2, 3],
        no_layout=False,
        eps=1e-6,
    )


def _ready(s: Situation) -> Situation:
    layout = SequenceLayout.padded(s.lengths, 3)
    return s.set(
        layout=layout.lengths if s.no_layout else layout, decoder=decoder(rms_epsilon=s.eps)
    )


def _put(name: str, row: int, t: int, value: object, s: Situation) -> None:
    getattr(s, name)[row, t] = value


SHAPES = (
    fault(Code.RAGGED_IDS, "ragged ids", lambda s: s.set(ids=[s.ids, 0])),
    fault(Code.NOT_AN_INTEGER, "float ids", lambda s: s.set(ids=s.ids.astype(float)), bound=5),
    fault(Code.TOKEN_RANK, "ids of rank 3", lambda s: s.set(ids=s.ids[None]), rank=3),
    fault(Code.EMPTY_BATCH, "no row", lambda s: s.set(ids=s.ids[:0])),
    fault(Code.EMPTY_TOKENS, "no token", lambda s: s.set(ids=s.ids[:, :0])),
    fault(
        Code.CONTEXT_LENGTH_EXCEEDED,
        "six tokens",
        lambda s: s.set(ids=np.concatenate([s.ids, s.ids], axis=1)),
        tokens=6,
        capacity=4,
    ),
    fault(Code.FIELD_TYPE, "lengths as layout", lambda s: s.set(no_layout=True), actual="ndarray"),
    fault(
        Code.LAYOUT_SHAPE_MISMATCH,
        "layout of three rows",
        lambda s: s.set(lengths=[2, 3, 3]),
        actual=(3, 3),
    ),
)
CONTENTS = (
    fault(
        Code.INACTIVE_CELL_NOT_PADDING,
        "token in an inactive cell",
        lambda s: _put("ids", 0, 2, 0, s),
        position=2,
        id=0,
    ),
    fault(
        Code.ZERO_EPSILON_WITH_PADDING,
        "padding without epsilon",
        lambda s: s.set(eps=0.0),
        at=2,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id 5",
        lambda s: _put("ids", 0, 1, 5, s),
        position=1,
        id=5,
        vocabulary_size=5,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id 9",
        lambda s: _put("ids", 0, 1, 9, s),
        position=1,
        id=9,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id -1 in an active cell",
        lambda s: _put("ids", 1, 0, -1, s),
        position=3,
        id=-1,
        vocabulary_size=5,
    ),
)
TARGETS = (
    fault(Code.RAGGED_IDS, "ragged targets", lambda s: s.set(targets=[s.targets, 0])),
    fault(
        Code.NOT_AN_INTEGER,
        "bool targets",
        lambda s: s.set(targets=s.targets.astype(bool)),
        position=0,
        id=True,
        bound=5,
    ),
    fault(
        Code.TARGET_COUNT_MISMATCH,
        "two targets per row",
        lambda s: s.set(targets=s.targets[:, :2]),
        expected=(2, 3),
        actual=(2, 2),
    ),
    fault(Code.RAGGED_IDS, "ragged valid", lambda s: s.set(valid=[s.valid, True])),
    fault(Code.VALID_NOT_BOOLEAN, "valid of 0 and 1", lambda s: s.set(valid=s.valid.astype(int))),
    fault(
        Code.VALID_SHAPE_MISMATCH,
        "one row of valid",
        lambda s: s.set(valid=s.valid[:1]),
        expected=(2, 3),
        actual=(1, 3),
    ),
    fault(
        Code.VALID_CELL_INACTIVE,
        "valid inactive cell",
        lambda s: _put("valid", 0, 2, True, s),
        position=2,
    ),
    fault(Code.NO_VALID_TARGET, "nothing valid", lambda s: s.set(valid=s.valid & False)),
    fault(
        Code.TARGET_ID_OUT_OF_BOUNDS,
        "target -1 in a valid cell",
        lambda s: _put("targets", 0, 0, -1, s),
        position=0,
        id=-1,
        vocabulary_size=5,
    ),
    fault(
        Code.TARGET_ID_OUT_OF_BOUNDS,
        "target 5",
        lambda s: _put("targets", 1, 2, 5, s),
        position=5,
        id=5,
        vocabulary_size=5,
    ),
    fault(
        Code.TARGET_ID_OUT_OF_BOUNDS,
        "target 9",
        lambda s: _put("targets", 1, 2, 9, s),
        position=5,
        id=9,
    ),
    fault(
        Code.INELIGIBLE_TARGET,
        "target in an ineligible cell",
        lambda s: _put("targets", 1, 1, 2, s),
        position=4,
        id=2,
    ),
)

forward = Boundary(
    name="Decoder.forward",
    order=TOKEN_ORDER,
    build=_build,
    ready=_ready,
    call=lambda s: s.decoder.forward(s.ids, layout=s.layout),
    faults=(*SHAPES, *CONTENTS),
)

mean, raw_sum = (
    Boundary(
        name=f"Decoder.{name}",
        order=LOSS_ORDER,
        build=_build,
        ready=_ready,
        call=lambda s, name=name: getattr(s.decoder, name)(  # type: ignore[misc]
            s.ids, s.targets, layout=s.layout, valid=s.valid
        ),
        faults=(*SHAPES, *TARGETS, *CONTENTS),
    )
    for name in ("loss", "loss_sum")
)


encode = Boundary(
    name="TextInputEncoder.encode",
    order=(Code.FIELD_TYPE, *TOKEN_ORDER, *[Code.FIELD_TYPE] * 2, Code.PREPARED_SHAPE),
    build=lambda: Situation(**vars(_build()), wider=False, context=NO_GRAD),
    ready=lambda s: (
        _ready(s),
        s.set(backbone=decoder(model_width=4).backbone if s.wider else s.decoder.backbone),
    ),
    call=lambda s: TextInputEncoder(s.decoder, s.ids, s.layout).encode(s.context, s.backbone),
    faults=(
        kind_fault("decoder", None, what="decoder"),
        *SHAPES,
        *CONTENTS,
        fault(Code.FIELD_TYPE, "no context", lambda s: s.set(context=None), actual="NoneType"),
        kind_fault("backbone", 1, what="backbone"),
        reason(
            Code.PREPARED_SHAPE,
            "backbone of width 4",
            lambda s: s.set(wider=True),
            expected=(2, 3, 4),
            actual=(2, 3, 2),
        ),
    ),
)


def _outside(code: Code, name: str) -> tuple[Fault, ...]:
    """Integers on either side of the vocabulary in the cells of a row, of which the first wins."""
    return tuple(
        fault(
            code,
            f"{value} in the {name}",
            lambda s, value=value, t=t: _put(name, 1, t, value, s),  # type: ignore[misc]
            position=3 + t,
            id=value,
            vocabulary_size=5,
        )
        for t, value in enumerate((5, -1, 9))
    )


def _full(name: str, rows: int) -> Boundary:
    """Of so many full rows of three cells: no padding, no layout, every cell counts."""
    ids = _outside(Code.TOKEN_ID_OUT_OF_BOUNDS, "ids")
    loses = name != "forward"
    targets = _outside(Code.TARGET_ID_OUT_OF_BOUNDS, "targets") if loses else ()
    return Boundary(
        name=f"Decoder.{name} of {rows} full rows",
        order=(*([targets[0].code] if loses else []), ids[0].code),
        build=lambda: Situation(
            ids=np.full((rows, 3), 4), targets=np.full((rows, 3), 4), decoder=decoder()
        ),
        call=lambda s: getattr(s.decoder, name)(*([s.ids, s.targets] if loses else [s.ids])),
        faults=(*targets, *ids),
    )


# A few ids are looked at in another way than many.
full = tuple(_full(name, rows) for name in ("forward", "loss", "loss_sum") for rows in (2, 20))

BOUNDARIES = (forward, mean, raw_sum, encode, *full)
