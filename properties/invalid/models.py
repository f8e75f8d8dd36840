"""Boundaries of backbones and decoders."""

from __future__ import annotations

from logitproof.core import (
    NO_GRAD,
    Decoder,
    DecoderBackbone,
    DecoderBlock,
    DecoderBlockConfig,
    DecoderConfig,
    Embedding,
    Linear,
    Parameter,
    RmsNorm,
    SequenceLayout,
    SplitMix64,
    SwiGlu,
    constant,
)
from logitproof.core.backbone import ASSEMBLY_ORDER
from logitproof.core.codes import Code

from .blocks import LAYER, block_of, placed
from .boundary import Apart, Boundary, Fault, Plant, Situation, fault, refuses
from .making import config, decoder, ramp, weight

__all__ = ["BOUNDARIES"]


def _assemble(s: Situation) -> Situation:
    final = RmsNorm.from_gain(weight("final_norm.gain", s.final), s.final_eps)
    return s.set(
        blocks=[
            facts if facts == "no block" else block_of(i, facts) for i, facts in enumerate(s.layers)
        ],
        final_norm=final.gain if s.bare_gain else final,
        table=weight(s.table_name, *s.table),
        config=DecoderBlockConfig(
            model_width=4,
            heads=2,
            feed_forward_width=3,
            max_positions=4,
            rope_base=100.0,
            kv_heads=s.kv_heads,
        ),
        model=DecoderConfig(
            vocabulary_size=5,
            model_width=4,
            heads=2,
            feed_forward_width=3,
            layers=2,
            max_positions=4,
            rope_base=100.0,
        ),
    )


def _parts() -> Situation:
    return Situation(
        layers=[dict(LAYER), dict(LAYER)],
        final=4,
        final_eps=1e-6,
        bare_gain=False,
        kv_heads=None,
        table=[5, 4],
        table_name="token_embedding.weight",
        bare_table=False,
        iterated=False,
    )


def _layer_fault(
    code: Code, index: int, name: str, value: object, actual: object, **facts: object
) -> Fault:
    return fault(
        code,
        f"layer {index} {name} {value}",
        lambda s: s.layers[index].update({name: value}),
        layer=index,
        actual=actual,
        **facts,
    )


def _layer_faults(index: int) -> tuple[Fault, ...]:
    above = index + 1
    bits = 1e-6 * (1 + above * 2.0**-52)
    return (
        _layer_fault(Code.LAYER_MODEL_WIDTH_MISMATCH, index, "D", 8 * above, 8 * above),
        _layer_fault(Code.LAYER_HEAD_COUNT_MISMATCH, index, "heads", 1, 1),
        _layer_fault(Code.LAYER_FEED_FORWARD_WIDTH_MISMATCH, index, "F", 3 + above, 3 + above),
        _layer_fault(Code.LAYER_POSITION_CAPACITY_MISMATCH, index, "C", 4 + above, 4 + above),
        _layer_fault(Code.LAYER_ROPE_BASE_MISMATCH, index, "base", 101.0, 101.0),
        _layer_fault(
            Code.LAYER_NORM_EPSILON_MISMATCH, index, "attention eps", bits, bits, norm="attention"
        ),
        _layer_fault(
            Code.LAYER_NORM_EPSILON_MISMATCH, index, "ffn eps", 0.0, 0.0, norm="feed-forward"
        ),
    )


SHARING = fault(
    Code.PREPARED_HEAD_SHARING,
    "grouped configuration",
    lambda s: s.set(kv_heads=1),
    layer=0,
    reason="block head sharing or context window differs from backbone",
)
FINALS = (
    fault(
        Code.FINAL_NORM_WIDTH_MISMATCH,
        "final norm of 6",
        lambda s: s.set(final=6),
        expected=4,
        actual=6,
    ),
    fault(
        Code.FINAL_NORM_EPSILON_MISMATCH,
        "final epsilon 2e-6",
        lambda s: s.set(final_eps=2e-6),
        actual=2e-6,
    ),
)
FIRST, SECOND = _layer_faults(0), _layer_faults(1)
KINDS = (
    fault(Code.FIELD_TYPE, "gain as final norm", lambda s: s.set(bare_gain=True)),
    fault(Code.FIELD_TYPE, "text as block", lambda s: s.layers.__setitem__(1, "no block")),
)
NO_SECOND = Apart("text has no sizes", {"text as block"}, {f.name for f in SECOND})

backbone = Boundary(
    name="DecoderBackbone",
    order=(Code.FIELD_TYPE, *ASSEMBLY_ORDER[:7], *ASSEMBLY_ORDER[:2], *ASSEMBLY_ORDER[3:]),
    build=_parts,
    ready=_assemble,
    call=lambda s: DecoderBackbone(s.config, s.blocks, s.final_norm),
    faults=(*KINDS, *FIRST[:2], SHARING, *FIRST[2:], *SECOND, *FINALS),
    apart=(NO_SECOND,),
)

parts = Boundary(
    name="Decoder.from_parts",
    order=(
        *refuses(Decoder.from_parts)[:4],
        Code.FIELD_TYPE,
        *[code for code in ASSEMBLY_ORDER[:7] if code is not SHARING.code] * 2,
        *ASSEMBLY_ORDER[7:],
        *refuses(Decoder.from_parts)[4:],
    ),
    build=_parts,
    ready=lambda s: (
        _assemble(s),
        s.set(embedding=s.table if s.bare_table else Embedding.from_parameter(s.table)),
    ),
    call=lambda s: Decoder.from_parts(
        s.model, s.embedding, iter(s.blocks) if s.iterated else s.blocks, s.final_norm
    ),
    faults=(
        fault(
            Code.FIELD_TYPE,
            "table as embedding",
            lambda s: s.set(bare_table=True),
            actual="Parameter",
        ),
        fault(
            Code.FIELD_TYPE,
            "iterator of blocks",
            lambda s: s.set(iterated=True),
            actual="list_iterator",
        ),
        fault(
            Code.EMBEDDING_VOCABULARY_MISMATCH,
            "table of six rows",
            lambda s: s.set(table=[6, s.table[1]]),
            expected=5,
            actual=6,
        ),
        fault(
            Code.EMBEDDING_WIDTH_MISMATCH,
            "table of width 5",
            lambda s: s.set(table=[s.table[0], 5]),
            expected=4,
            actual=5,
        ),
        fault(
            Code.LAYER_COUNT_MISMATCH,
            "three blocks",
            lambda s: s.layers.append(dict(LAYER)),
            expected=2,
            actual=3,
        ),
        *KINDS,
        *FIRST[:2],
        FIRST[5],
        SECOND[0],
        *SECOND[2:5],
        *FINALS,
        fault(
            Code.PARAMETER_NAME_MISMATCH,
            "table named otherwise",
            lambda s: s.set(table_name="tokens"),
            index=0,
            expected="token_embedding.weight",
            actual="tokens",
        ),
    ),
    apart=(NO_SECOND,),
    unreachable={
        Code.DUPLICATE_PARAMETER_NAME: "names that are all as they must be differ",
        Code.PARAMETER_COUNT_MISMATCH: "planted for a bias whose name fits, below",
    },
)


def _shift(s: Situation) -> None:
    """A bias takes the next name, and every later name moves on by one."""
    made = decoder().backbone.blocks[0]
    gate, up, down = (
        Linear.from_parameters(Parameter(f"blocks.0.ffn.{name}.weight", layer.weight.value), bias)
        for name, layer, bias in (
            ("gate", made.ffn.gate, Parameter("blocks.0.ffn.up.weight", [0.0, 0.0])),
            ("down", made.ffn.up, None),
            ("out", made.ffn.down, None),
        )
    )
    down.weight.name = "final_norm.gain"
    ffn = SwiGlu(gate, up, down) if s.biased else made.ffn
    s.set(
        config=config(),
        table=decoder().embedding,
        blocks=[DecoderBlock(made.attention_norm, made.attention, made.ffn_norm, ffn)],
        final_norm=RmsNorm.from_gain(
            weight("more.gain" if s.biased else "final_norm.gain", 2), 1e-6
        ),
    )


shifted = Boundary(
    name="Decoder.from_parts with a bias",
    order=(Code.PARAMETER_COUNT_MISMATCH,),
    build=lambda: Situation(biased=False),
    ready=_shift,
    call=lambda s: Decoder.from_parts(s.config, s.table, s.blocks, s.final_norm),
    faults=(
        fault(
            Code.PARAMETER_COUNT_MISMATCH,
            "a bias whose name fits",
            lambda s: s.set(biased=True),
            expected=11,
            actual=12,
        ),
    ),
)


def _parameters() -> Situation:
    facts = {p.name: list(p.shape) for p in decoder(layers=2).parameters.values()}
    return Situation(shapes=facts, names={}, more=[], vocabulary=5, eps=1e-6, bare=None, none=False)


def _make_parameters(s: Situation) -> None:
    made = [weight(s.names.get(name, name), *shape) for name, shape in s.shapes.items()]
    if s.bare is not None:
        made[s.bare] = made[s.bare].value
    s.set(
        parameters=None if s.none else [*made, *s.more],
        config=config(layers=2, vocabulary_size=s.vocabulary),
    )


def _reshaped(name: str, *shape: int) -> Plant:
    return lambda s: s.shapes.update({name: list(shape)})


def _local(code: Code, name: str, *shape: int, **facts: object) -> Fault:
    return fault(code, f"{name} {list(shape)}", _reshaped(name, *shape), **facts)


FIRST_BLOCK, SECOND_BLOCK = "blocks.0", "blocks.1"
LOCAL = (
    _local(Code.TABLE_RANK, "token_embedding.weight", 5, rank=1),
    _local(Code.GAIN_RANK, f"{FIRST_BLOCK}.attention_norm.gain", 2, 1, actual=(2, 1)),
    _local(Code.WEIGHT_RANK, f"{FIRST_BLOCK}.attention.query.weight", 2, rank=1),
    _local(Code.PROJECTION_INPUT_WIDTH_MISMATCH, f"{FIRST_BLOCK}.attention.key.weight", 4, 2),
    _local(Code.WEIGHT_RANK, f"{FIRST_BLOCK}.attention.output.weight", 2, rank=1),
    _local(Code.GAIN_RANK, f"{FIRST_BLOCK}.ffn_norm.gain", 2, 1, actual=(2, 1)),
    _local(Code.WEIGHT_RANK, f"{FIRST_BLOCK}.ffn.gate.weight", 2, rank=1),
    _local(Code.BRANCH_INPUT_WIDTH_MISMATCH, f"{FIRST_BLOCK}.ffn.up.weight", 4, 2, up=4),
    _local(Code.DOWN_INPUT_WIDTH_MISMATCH, f"{FIRST_BLOCK}.ffn.down.weight", 4, 2, down=4),
    _local(Code.GAIN_RANK, f"{SECOND_BLOCK}.attention_norm.gain", 2, 1, actual=(2, 1)),
    _local(Code.COMPONENT_WIDTH_MISMATCH, f"{SECOND_BLOCK}.ffn_norm.gain", 3, actual=3),
    _local(Code.GAIN_RANK, "final_norm.gain", 2, 1, actual=(2, 1)),
)

loaded = Boundary(
    name="Decoder.from_parameters",
    order=(
        *refuses(Decoder.from_parameters)[:2],
        Code.FIELD_TYPE,
        Code.PARAMETER_NAME_MISMATCH,
        *[planted.code for planted in LOCAL],
        Code.EMBEDDING_VOCABULARY_MISMATCH,
        Code.FINAL_NORM_WIDTH_MISMATCH,
    ),
    build=_parameters,
    ready=_make_parameters,
    call=lambda s: Decoder.from_parameters(s.config, s.parameters),
    faults=(
        fault(Code.FIELD_TYPE, "no parameters", lambda s: s.set(none=True), actual="NoneType"),
        fault(
            Code.PARAMETER_COUNT_MISMATCH,
            "one parameter more",
            lambda s: s.more.append(weight("more", 1)),
            expected=20,
            actual=21,
        ),
        fault(Code.FIELD_TYPE, "array as table", lambda s: s.set(bare=0)),
        fault(
            Code.PARAMETER_NAME_MISMATCH,
            "gate named as up",
            lambda s: s.names.update(
                {f"{FIRST_BLOCK}.ffn.gate.weight": f"{FIRST_BLOCK}.ffn.up.weight"}
            ),
            index=7,
        ),
        *LOCAL,
        fault(
            Code.EMBEDDING_VOCABULARY_MISMATCH,
            "vocabulary of six",
            lambda s: s.set(vocabulary=6),
            expected=6,
            actual=5,
        ),
        _local(Code.FINAL_NORM_WIDTH_MISMATCH, "final_norm.gain", 3, actual=3),
    ),
    apart=(Apart("one shape", {"final_norm.gain [2, 1]", "final_norm.gain [3]"}),),
)

config_kind = Boundary(
    name="Decoder",
    order=(Code.FIELD_TYPE,),
    build=lambda: Situation(config=config(), rng=SplitMix64(4)),
    call=lambda s: Decoder(s.config, s.rng),
    faults=(
        fault(
            Code.FIELD_TYPE,
            "block configuration",
            lambda s: s.set(config=s.config.block_config),
            actual="DecoderBlockConfig",
        ),
        fault(Code.FIELD_TYPE, "no generator", lambda s: s.set(rng=None), actual="NoneType"),
    ),
)

SITES = {"site 3": 3, "site -1": -1, "site 2**64": 2**64}
NO_SITES = {"site 1.0": 1.0, "site True": True, "a list of sites": [1]}

resume = Boundary(
    name="DecoderBackbone.resume",
    order=refuses(DecoderBackbone.resume),
    build=lambda: Situation(decoder=decoder(), site=2, value=constant(ramp(1, 2, 2))),
    call=lambda s: s.decoder.backbone.resume(
        s.site, s.value, layout=SequenceLayout.full(1, 2), context=NO_GRAD
    ),
    faults=(
        *[
            fault(Code.NOT_AN_INTEGER, name, placed("site", site))  # type: ignore[arg-type]
            for name, site in NO_SITES.items()
        ],
        *[
            fault(
                Code.SITE_OUT_OF_RANGE,
                name,
                placed("site", site),
                site=site,
                site_count=3,
            )
            for name, site in SITES.items()
        ],
    ),
    apart=(Apart("one site is given", {*SITES, *NO_SITES}),),
)

BOUNDARIES = (
    backbone, parts, shifted,
    loaded, config_kind, resume,
)  # fmt: skip
