"""Published figures and digests: read strictly from `figures-v1.json`, where each stands once."""

import json
import re
import struct
from dataclasses import MISSING, dataclass, fields
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "ConfigFigure",
    "Figures",
    "MatrixFigure",
    "PositionLosses",
    "PrintedLogits",
    "PrintedLoss",
    "Probe",
    "Run",
    "TableGradient",
    "TableStart",
    "Words",
    "digest",
    "figures",
    "from_bits",
    "to_bits",
]

FILE = "figures-v1.json"
FORMAT = "logitproof-figures-v1"
HEX_DIGITS = {
    **dict.fromkeys(("parameters_digest", "logits_digest", "gradients_digest"), 64),
    **dict.fromkeys(("c_library_logits_digest", "c_library_gradients_digest"), 64),
    **dict.fromkeys(("final_state", "loss", "raw_sum", "words", "values"), 16),
    **dict.fromkeys(("rope_base", "rms_epsilon", "glibc_fma", "glibc_plain"), 16),
}

Ids = list[list[int]]
T = TypeVar("T")


def from_bits(bits: str) -> float:
    """The binary64 with these 16 hex digits."""
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])


def to_bits(value: float) -> str:
    """The 16 hex digits of a binary64."""
    return struct.pack(">d", value).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFigure:
    """The sizes of a published model; the two floats as bits."""

    vocabulary_size: int
    model_width: int
    heads: int
    feed_forward_width: int
    layers: int
    max_positions: int
    rope_base: str
    rms_epsilon: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One golden run; digests are SHA-256 over little-endian binary64 in stable order.

    The digests named `c_library` came out with the functions of glibc on x86-64 with fused
    multiply-add, the others with correctly rounded ones.
    """

    id: str
    source: str
    config: str
    seed: int
    depth_scaled: bool
    ids: Ids
    targets: Ids
    final_state: str
    loss: str
    parameters_digest: str
    logits_digest: str
    gradients_digest: str
    c_library_logits_digest: str
    c_library_gradients_digest: str
    raw_sum: str | None = None

    def __str__(self) -> str:
        scaled = ", scaled by depth" if self.depth_scaled else ""
        return (
            f"run {self.id} ({self.source}): model {self.config}, seed {self.seed}{scaled};"
            f" ids {self.ids}; targets {self.targets}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The first words of a generator."""

    source: str
    seed: int
    words: list[str]

    def __str__(self) -> str:
        return f"the first {len(self.words)} words of seed {self.seed} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFigure:
    """A drawn matrix, row-major."""

    id: str
    source: str
    seed: int
    shape: list[int]
    values: list[str]

    def __str__(self) -> str:
        return f"the matrix {self.shape} of seed {self.seed} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStart:
    """The first elements of a run's token table."""

    source: str
    run: str
    values: list[str]

    def __str__(self) -> str:
        return f"the first elements of run {self.run}'s token table ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLosses:
    """The loss of each position of a run, shortest decimals that name the double."""

    source: str
    run: str
    decimals: list[str]

    def __str__(self) -> str:
        return f"the positions of run {self.run} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGradient:
    """One coordinate of a run's tied gradient and its two parts, as shortest decimals."""

    source: str
    run: str
    row: int
    feature: int
    total: str
    lookup: str
    head: str

    def __str__(self) -> str:
        return f"run {self.run}, table row {self.row}, feature {self.feature} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedLogits:
    """The logits of one position, in decimals of fixed width."""

    id: str
    source: str
    config: str
    seed: int
    ids: Ids
    position: int
    decimals: list[str]

    def __str__(self) -> str:
        return f"model {self.config}, seed {self.seed}; ids {self.ids} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedLoss:
    """A mean loss in decimals of fixed width."""

    id: str
    source: str
    config: str
    seed: int
    ids: Ids
    targets: Ids
    decimals: str

    def __str__(self) -> str:
        return (
            f"model {self.config}, seed {self.seed}; ids {self.ids}; targets {self.targets}"
            f" ({self.source})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A function value that tells C libraries apart."""

    function: str
    argument: str
    glibc_fma: str
    glibc_plain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything in the file."""

    configs: dict[str, ConfigFigure]
    runs: dict[str, Run]
    words: Words
    matrices: list[MatrixFigure]
    table_start: TableStart
    position_losses: PositionLosses
    table_gradient: TableGradient
    printed_logits: list[PrintedLogits]
    printed_losses: list[PrintedLoss]
    probes: list[Probe]


def digest() -> str:
    """The SHA-256 of the file: which figures these are."""
    return sha256(_bytes()).hexdigest()


@cache
def figures() -> Figures:
    """The file's content. Raises ValueError where it is not exactly of this form."""
    return parse(_bytes().decode("ascii"))


def figures_in(folder: Path) -> Figures:
    """The content of the file of this name in another folder.

    Raises ValueError where it cannot be read, or is not exactly of this form.
    """
    try:
        return parse((folder / FILE).read_bytes().decode("ascii"))
    except OSError as fault:
        raise ValueError(f"{FILE}: {fault.strerror or fault}") from None
    except ValueError as fault:
        raise ValueError(f"{FILE}: {fault}") from None


def parse(text: str) -> Figures:
    """Figures from JSON text: no key unknown, missing or twice, every value of its type."""
    try:
        raw = json.loads(
            text, object_pairs_hook=_unique, parse_float=_refuse, parse_constant=_refuse
        )
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None
    if not isinstance(raw, dict) or raw.pop("format", None) != FORMAT:
        raise ValueError(f"not a file of format {FORMAT}")
    probes = raw.pop("c_library_probes", None)
    if not isinstance(probes, dict) or set(probes) != {"source", "probes"}:
        raise ValueError("c_library_probes: source and probes are wanted")
    raw["probes"] = probes["probes"]
    _check_keys(Figures, raw, "figures")
    runs = _records(Run, raw["runs"], "runs")
    if not isinstance(raw["configs"], dict):
        raise ValueError("configs: an object is wanted")
    configs = {
        name: _record(ConfigFigure, item, f"configs.{name}")
        for name, item in raw["configs"].items()
    }
    for i, run in enumerate(runs):
        if run.config not in configs:
            raise ValueError(f"runs[{i}].config: {run.config!r:.60} is no config")
    return Figures(
        configs=configs,
        runs={run.id: run for run in runs},
        words=_record(Words, raw["words"], "words"),
        matrices=_records(MatrixFigure, raw["matrices"], "matrices"),
        table_start=_record(TableStart, raw["table_start"], "table_start"),
        position_losses=_record(PositionLosses, raw["position_losses"], "position_losses"),
        table_gradient=_record(TableGradient, raw["table_gradient"], "table_gradient"),
        printed_logits=_records(PrintedLogits, raw["printed_logits"], "printed_logits"),
        printed_losses=_records(PrintedLoss, raw["printed_losses"], "printed_losses"),
        probes=_records(Probe, raw["probes"], "probes"),
    )


def _bytes() -> bytes:
    return resources.files(__package__).joinpath(FILE).read_bytes()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key occurs twice among {[key for key, _ in pairs]}")
    return found


def _refuse(token: str) -> None:
    raise ValueError(f"{token}: floats are written as 16 hex digits")


def _records(kind: type[T], items: Any, what: str) -> list[T]:
    if not isinstance(items, list):
        raise ValueError(f"{what}: a list is wanted")
    return [_record(kind, item, f"{what}[{i}]") for i, item in enumerate(items)]


def _record(kind: type[T], item: Any, what: str) -> T:
    if not isinstance(item, dict):
        raise ValueError(f"{what}: an object is wanted")
    _check_keys(kind, item, what)
    for name, value in item.items():
        _check_value(kind.__annotations__[name], value, f"{what}.{name}")
    return kind(**item)


def _check_keys(kind: type[Any], item: dict[str, Any], what: str) -> None:
    known = {f.name for f in fields(kind)}
    wanted = {f.name for f in fields(kind) if f.default is MISSING}
    if set(item) - known or wanted - set(item):
        wrong = sorted((set(item) - known) | (wanted - set(item)))
        raise ValueError(f"{what}: unknown or missing {', '.join(wrong)}")


def _check_value(annotation: Any, value: Any, what: str) -> None:
    """Its annotation's type, and as many hex digits as its name asks for."""
    of = {int: int, bool: bool, str: str, str | None: str}.get(annotation, list)
    if type(value) is not of:
        raise ValueError(f"{what}: {of.__name__} is wanted, not {value!r}")
    size = HEX_DIGITS.get(what.rpartition(".")[2])
    texts = value if isinstance(value, list) else [value]
    if size and not all(re.fullmatch(f"[0-9a-f]{{{size}}}", str(text)) for text in texts):
        raise ValueError(f"{what}: {size} hex digits are wanted, not {value!r}")
