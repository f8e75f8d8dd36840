"""Execution support: what a valid plan asks for that nothing here runs."""

from collections.abc import Iterator

from .codes import Code
from .errors import SupportRefusal
from .profiles import BLOCKED, Profile
from .records import ModelRecord, RunRecord

_EXECUTED = (
    (Code.BACKEND, "backend", ("numpy",)),
    (Code.DEVICE, "device", ("cpu",)),
    (Code.KERNEL, "kernel", ("ordered-f64", "blas-f64")),
)


def check(model: ModelRecord, run: RunRecord, profile: Profile) -> Iterator[SupportRefusal]:
    """Every fact that has no execution here.

    Order:  head grouping, backend, device, kernel, dtype, distribution, artifact, seed
    Source: profiles.md section 3
    """
    if model.kv_heads != model.heads:
        heads = f"{model.heads} query heads over {model.kv_heads} key/value heads"
        yield SupportRefusal(code=Code.GROUPED_HEADS, what="model.kv_heads", feature=heads)
    for code, name, executed in _EXECUTED:
        if getattr(run, name) not in executed:
            feature = f"{name} {getattr(run, name)}"
            yield SupportRefusal(code=code, what=f"run.{name}", feature=feature)
    if model.dtype_policy != "f64":
        yield SupportRefusal(
            code=Code.DTYPE, what="model.dtype_policy", feature=f"dtype {model.dtype_policy}"
        )
    if run.world_size > 1:
        yield SupportRefusal(
            code=Code.DISTRIBUTED, what="run.world_size", feature=f"world size {run.world_size}"
        )
    if profile.state == BLOCKED:
        yield SupportRefusal(
            code=Code.ARTIFACT, what=f"profile.{profile.name}", feature=f"artifact {profile.scale}"
        )
    if profile.seeds and run.seeds.initialization not in profile.seeds:
        yield SupportRefusal(
            code=Code.SEED,
            what="run.seeds.initialization",
            feature=f"seed {run.seeds.initialization}",
            details={"expected": ", ".join(map(str, profile.seeds))},
        )
