"""Golden cases of records, identities, census, ledgers and plans, done by the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitproof.core import identity, ledgers, liveness
from logitproof.core.census import census
from logitproof.core.initial import SplitMix64
from logitproof.core.ledgers import Allocation
from logitproof.core.liveness import Event
from logitproof.core.macs import macs
from logitproof.core.planner import Admission, admit, plan
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.core.traffic import traffic
from logitproof.properties import config_json

from .load import Case

__all__ = ["KINDS"]

Object = dict[str, Any]
NOMINAL = "production-plan-only"  # a run that any model may be counted for


def _record(case: Case) -> Object:
    kind: Any = ModelRecord if case.setup["record"] == "model" else RunRecord
    if "text" in case.input:
        record = kind.from_bytes(_text(case.input["text"]).encode("utf-8", "surrogatepass"))
    else:
        record = kind(**case.input["fields"])
    return {"text": record.to_bytes().decode(), "sha256": record.identity}


def _text(value: Any) -> str:
    """A text, or texts end to end, each of them perhaps repeated."""
    if isinstance(value, list):
        return "".join(map(_text, value))
    return str(value["repeat"] * value["times"] if isinstance(value, dict) else value)


def _identity(case: Case) -> Object:
    if "text" in case.input:
        framed = identity.decode(_text(case.input["text"]).encode())
    else:
        fields = case.input["fields"]
        pairs = fields.items() if isinstance(fields, dict) else fields
        framed = identity.frame(case.input["domain"], [(_text(k), _text(v)) for k, v in pairs])
    return {"text": framed.to_bytes().decode(), "sha256": framed.sha256}


def _construction(case: Case) -> Object:
    token = admit(_model(case.setup["scale"]), RunRecord.fixture(case.setup["run"]))
    rng = SplitMix64(case.input["seed"])
    if case.input.get("how") == "forged":
        token = Admission(token.plan, key=object())
    elif case.input.get("how") == "twice":
        token.construct(rng.copy())
    made = token.construct(rng)
    return {"sha256": made.identity, "final_state": f"{rng.state:016x}"}


def _census(case: Case) -> Object:
    if "scale" in case.setup:
        model, rows = ModelRecord.scale(case.setup["scale"]), 0
    else:
        fields = dict(case.input["fields"])
        rows = fields.pop("rows", 0)
        model = ModelRecord(**fields)
    counted = census(model)
    names = ("embedding", "attention", "feed_forward", "norms", "total", "tensors")
    found: Object = {"totals": {name: getattr(counted, name) for name in names}}
    if "groups" in case.expect:
        found["groups"] = [[name, list(shape)] for name, shape in counted.named_tensors()]
    if "kv_bytes" in case.expect:
        run = RunRecord.fixture(NOMINAL).replace(rows=rows or case.input["rows"])
        planned = plan(model, run)
        found["kv_bytes"] = {str(width): size for width, size in planned.kv_bytes.items()}
    if "macs" in case.expect:
        products = macs(model, counted, rows=rows or case.input["rows"])
        found["macs"] = {kind: getattr(products, kind) for kind in case.expect["macs"]}
    return found


def _model(scale: Any) -> ModelRecord:
    return ModelRecord(**scale) if isinstance(scale, dict) else ModelRecord.scale(scale)


def _traffic(case: Case) -> Object:
    model = _model(case.setup["scale"])
    run = RunRecord.fixture(case.setup["run"]).replace(**case.input["run_fields"])
    sent = traffic(model, run, census(model), width=case.input["width"])
    return {"facts": {name: getattr(sent, name) for name in case.expect.get("facts", {})}}


def _liveness(case: Case) -> Object:
    lived = liveness.measure(
        Event(action=action, name=name, bytes=size, workspace=workspace, of=(*rest, "")[0])
        for action, name, size, workspace, *rest in case.input["events"]
    )
    names = ("resident_peak", "workspace", "combined_peak")
    return {name: getattr(lived, name) for name in names}


def _ledger(case: Case) -> Object:
    if case.setup["of"] == "illustration":
        return {"total": ledgers.illustration(case.input["elements"]).total}
    if case.setup["of"] == "rope":
        model = ModelRecord.scale(case.input["scale"])
        width = model.model_width // model.heads
        held = ledgers.rope_tables(
            model.layers, model.max_positions, width, dtype_policy=model.dtype_policy
        )
        return {"total": held.total}
    entries = [
        Allocation(name=name, elements=elements, element_bytes=8, alias_of=alias)
        for name, elements, alias in case.input["entries"]
    ]
    return {"total": ledgers.ledger(entries, what="ledger").total}


def _plan(case: Case) -> Object:
    given = case.input
    model = _model(case.setup["scale"]).replace(**given["model_fields"])
    run = RunRecord.fixture(case.setup["run"]).replace(**given["run_fields"])
    if given.get("mode") == "admit":
        admit(model, run)
        return {"admissible": True, "reasons": []}
    planned = plan(model, run, given.get("mode", "tracked-full"))
    reasons = [{"code": str(reason.code), "what": reason.what} for reason in planned.refusals]
    return {"admissible": planned.admissible, "reasons": reasons}


def _foreign(case: Case) -> Object:
    return {"sha256": config_json.read(case.input["text"].encode()).record.identity}


KINDS: dict[str, Callable[[Case], Object]] = {
    "record": _record,
    "identity": _identity,
    "construction": _construction,
    "census": _census,
    "traffic": _traffic,
    "liveness": _liveness,
    "ledger": _ledger,
    "plan": _plan,
    "foreign-config": _foreign,
}
