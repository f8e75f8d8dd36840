"""What each kind of golden case holds, and of which form every part of it is."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["KINDS", "check_form", "check_keys"]

Object: TypeAlias = dict[str, Any]

# Kind -> what setup, input and expect hold; "?" marks what may be missing.
KINDS = {
    "function": ("name base?", "arguments", "value true?"),
    "operation": ("op", "operands arguments upstream?", "value? contributions? true? bound? ulps?"),
    "generator": ("draws", "seed count? fan_in? fan_out? config?", "words? uniforms? matrix? "
                  "final_state? parameters_digest?"),
    "rotary-table": ("width capacity base", "", "frequencies cosines sines"),
    "layout": ("form", "lengths? segments? rows? tokens? arrays?",
               "lengths? range_starts? positions?"),
    "config": ("of", "fields", ""),
    "decoder": ("config weights? seed?", "ids targets? layout? valid? sum?",
                "logits? loss? loss_sum? gradients? lookup? head? stages? true? bound? ulps?"),
    "session": ("config weights? seed?", "script", "logits? positions? length? work?"),
    "decode-chain": ("config weights", "first steps", "digest"),
    "update-chain": ("config weights", "ids targets factor steps", "digest"),
    "record": ("record", "fields? text?", "text? sha256?"),
    "identity": ("", "domain? fields? text?", "text? sha256?"),
    "construction": ("scale run", "seed how?", "sha256 final_state"),
    "census": ("scale?", "fields? rows?", "groups? totals? kv_bytes? macs?"),
    "traffic": ("scale run", "run_fields width", "facts"),
    "liveness": ("", "events", "resident_peak workspace combined_peak"),
    "ledger": ("of", "elements? entries? scale?", "total"),
    "plan": ("scale run", "model_fields run_fields mode?", "admissible reasons"),
    "foreign-config": ("", "text", "sha256"),
    "tokenizer": ("merges call", "argument", "result? passes? vocabulary_size?"),
    "learned-merges": ("", "sequences rounds", "merges"),
    "boundary": ("boundary fault", "", ""),
    "figure": ("section id?", "", "fields"),
    "layer": ("layer constants", "operands upstream?", "values? gradients? true? bound?"),
    "slope": ("of", "point step candidate? tolerance?", "true bound"),
    "demand": ("profile", "terms cap?", "reasons"),
    "profile": ("profile", "", "facts"),
}  # fmt: skip


# Part and name -> the form of what stands there; a name that is not here may hold anything that
# JSON has, and must be read by whoever judges the case.
SETUP = {
    **dict.fromkeys(
        ("name", "op", "draws", "form", "of", "record", "section", "id", "layer"), "text"
    ),
    **dict.fromkeys(("call", "boundary", "fault", "run", "profile"), "text"),
    **dict.fromkeys(("config", "weights", "constants"), "object"),
    "base": "f64",
}
INPUT = {
    **dict.fromkeys(("script", "events", "sequences", "terms"), "list"),
    **dict.fromkeys(("upstream", "factor"), "f64"),
    **dict.fromkeys(("steps", "rounds", "count", "fan_in", "fan_out"), "count"),
    **dict.fromkeys(("first", "width"), "integer"),
    **dict.fromkeys(("point", "step", "candidate", "tolerance"), "f64"),
    **dict.fromkeys(("model_fields", "run_fields"), "object"),
}
EXPECT = {
    **dict.fromkeys(("value", "matrix", "uniforms", "frequencies", "cosines", "sines"), "f64"),
    **dict.fromkeys(("logits", "loss", "loss_sum", "lookup", "head"), "f64"),
    **dict.fromkeys(("values", "gradients"), "arrays"),
    **dict.fromkeys(("totals", "kv_bytes", "macs", "work", "facts", "stages"), "facts"),
    **dict.fromkeys(("fields", "words", "groups"), "filled"),
    **dict.fromkeys(("passes", "merges", "reasons"), "list"),
    **dict.fromkeys(("lengths", "range_starts", "positions"), "list"),
    **dict.fromkeys(("final_state", "parameters_digest", "digest", "sha256"), "digits"),
    **dict.fromkeys(("resident_peak", "workspace", "combined_peak", "total"), "integer"),
    **dict.fromkeys(("length", "vocabulary_size"), "integer"),
    "contributions": "arrays in order",
    "text": "text",
    "admissible": "boolean",
    "ulps": "integer",
}
MOST = 10**6  # of anything that is done over and over
# What an operation takes besides arrays, where it is not refused.
ARGUMENT = ("f64", "i64", "integer", "boolean", "integers")


def check_form(item: Object, path: str) -> None:
    """What the kind of a case says about its three parts. Raises ValueError with the path."""
    for name in ("setup", "input", "expect"):
        if not isinstance(item[name], dict):
            raise ValueError(f"{path}.{name}: an object is wanted")
    kind = item["setup"].get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{path}.setup.kind: {kind!r:.60} is unknown")
    setup, given, expect = (names.split() for names in KINDS[kind])
    check_keys(item["setup"], ("kind", *setup), f"{path}.setup")
    check_keys(item["input"], given, f"{path}.input")
    _check_forms(item["setup"], SETUP, f"{path}.setup")
    if "refusal" in item["expect"]:
        _check_refusal(item["expect"], f"{path}.expect")
        return
    check_keys(item["expect"], expect, f"{path}.expect")
    if not item["expect"]:
        raise ValueError(f"{path}.expect: nothing is expected")
    _check_forms(item["input"], INPUT, f"{path}.input")
    _check_forms(item["expect"], EXPECT, f"{path}.expect")
    if kind in ("operation", "layer"):
        _check_operands(item["input"], f"{path}.input")
    _check_strength(item["strength"], item["expect"], f"{path}.expect")


def check_keys(item: Any, names: Any, path: str) -> None:
    """An object with these keys and no others; those that end in ? may be missing."""
    if not isinstance(item, dict):
        raise ValueError(f"{path}: an object is wanted, not {type(item).__name__}")
    known = {name.rstrip("?") for name in names}
    wanted = {name for name in names if not name.endswith("?")}
    for word, wrong in (("unknown", set(item) - known), ("missing", wanted - set(item))):
        if wrong:
            raise ValueError(f"{path}: {word} {', '.join(sorted(wrong))}")


def _check_refusal(expect: Object, path: str) -> None:
    check_keys(expect, ("refusal",), path)
    check_keys(expect["refusal"], ("code", "fields"), f"{path}.refusal")
    _check_forms(expect["refusal"], {"code": "text", "fields": "object"}, f"{path}.refusal")


def _check_operands(given: Object, path: str) -> None:
    operands = given["operands"]
    if not isinstance(operands, dict | list):
        raise ValueError(f"{path}.operands: arrays are wanted")
    for key, operand in operands.items() if isinstance(operands, dict) else enumerate(operands):
        _check_one(operand, "f64", f"{path}.operands[{key}]")
    arguments = given.get("arguments", {})
    _check_one(arguments, "object", f"{path}.arguments")
    for name, value in arguments.items():
        if not any(FORMS[form](value) for form in ARGUMENT):
            raise ValueError(f"{path}.arguments.{name}: no argument of an operation has this form")


def _check_strength(strength: str, expect: Object, path: str) -> None:
    for key in ("ulps", "bound"):
        if (strength == key) != (key in expect):
            raise ValueError(f"{path}: {key} belongs to the strength {key} alone")
    truth = expect.get("true", {})
    if strength == "exact":
        _check_beside(truth, expect, "hi", f"{path}.true")
        return
    if not truth:
        raise ValueError(f"{path}: the strength {strength} needs true values")
    _check_pairs(truth, f"{path}.true")
    if strength == "bound":
        _check_beside(expect["bound"], truth, "f64", f"{path}.bound")
        _check_beside(truth, expect["bound"], "hi", f"{path}.true")


def _check_pairs(truth: Any, path: str) -> None:
    """Pairs of doubles, however they are nested."""
    if isinstance(truth, dict) and truth and "hi" not in truth:
        for key, inner in truth.items():
            _check_pairs(inner, f"{path}.{key}")
    elif isinstance(truth, list):
        for i, inner in enumerate(truth):
            _check_pairs(inner, f"{path}[{i}]")
    else:
        _check_one(truth, "pair", path)


def _check_beside(one: Any, other: Any, words: str, path: str) -> None:
    """Arrays of this form, nested and shaped as those of the other."""
    nested = isinstance(other, dict) and "shape" not in other
    if isinstance(one, dict) and words not in one and nested:
        for key, inner in one.items():
            if key not in other:
                raise ValueError(f"{path}.{key}: nothing of this name stands beside it")
            _check_beside(inner, other[key], words, f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            _check_beside(*pair, words, f"{path}[{i}]")
    else:
        _check_one(one, "pair" if words == "hi" else words, path)
        if not isinstance(other, dict) or one["shape"] != other.get("shape"):
            raise ValueError(f"{path}: its shape is not that of what stands beside it")


def _check_forms(held: Object, forms: dict[str, str], path: str) -> None:
    for name, value in held.items():
        if name in forms:
            _check_one(value, forms[name], f"{path}.{name}")


def _check_one(value: Any, form: str, path: str) -> None:
    if not FORMS[form](value):
        raise ValueError(f"{path}: {WANTED.get(form, form)} is wanted, not {value!r:.60}")


def _has(*keys: str) -> Any:
    return lambda value: isinstance(value, dict) and set(value) == {"shape", *keys}


FORMS: dict[str, Any] = {
    "f64": _has("f64"),
    "i64": _has("i64"),
    "pair": _has("hi", "lo"),
    "arrays": lambda v: isinstance(v, dict) and bool(v) and all(map(_has("f64"), v.values())),
    "arrays in order": lambda v: isinstance(v, list) and all(map(_has("f64"), v)),
    "text": lambda v: isinstance(v, str),
    "digits": lambda v: isinstance(v, str) and bool(v),
    "integer": lambda v: type(v) is int,
    "count": lambda v: type(v) is int and 0 <= v <= MOST,
    "integers": lambda v: isinstance(v, list) and all(type(n) is int for n in v),
    "boolean": lambda v: isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "facts": lambda v: isinstance(v, dict) and bool(v),
    "list": lambda v: isinstance(v, list),
    "filled": lambda v: isinstance(v, list) and bool(v),
}
WANTED = {
    "f64": "an array of doubles",
    "pair": "an array of pairs",
    "arrays": "an object of arrays of doubles, not empty,",
    "arrays in order": "a list of arrays of doubles",
    "facts": "an object that is not empty",
    "filled": "a list that is not empty",
    "digits": "text",
    "count": f"an integer up to {MOST}",
}
