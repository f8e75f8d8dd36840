"""What the syntax tree shows: who imports whom, where bits are decided, how large things are."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Container, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from logitproof.properties.faults import REGISTRY

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "properties", "golden", "tests")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
CORE = [path for path in SOURCES if path.is_relative_to(ROOT / "core")]
TESTS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]

# Inside core: two columns, each importing upward only; they meet in `build`.
NUMERIC_COLUMN = (
    "codes", "errors", "sizes", "shapes",
    "exact", "logarithm", "rounded", "floats", "arrays", "names", "kernels",
    "vjp", "fused", "softmax", "ops", "trace", "backward", "unfolding", "tape", "retained",
    "gradcheck", "initial", "layers", "tokenizer", "layout", "batches", "rope", "attention",
    "config", "block", "checkpoint", "prepared", "backbone", "text", "fresh", "cache",
    "incremental", "row", "session",
)  # fmt: skip
RECORD_COLUMN = (
    *NUMERIC_COLUMN[: NUMERIC_COLUMN.index("kernels")], "canonical", "fields", "identity",
    "profiles", "limits", "records", "census", "ledgers", "liveness", "schedule", "lifetimes",
    "workspace", "modes", "macs", "traffic", "report", "planned", "support", "planner",
)  # fmt: skip
COLUMNS = (NUMERIC_COLUMN, RECORD_COLUMN, (*NUMERIC_COLUMN, *RECORD_COLUMN, "build", "__init__"))
STRANGERS = {("ops", "tape"), ("tape", "ops")}  # the tape runs any operation and knows none
# Under TYPE_CHECKING alone: the carrier names the type of the backbone that it is made for, the
# reverse pass the type of the nodes it walks, a fused operation that of the nodes of its steps.
TYPE_ONLY = {
    ("core.prepared", "core.backbone"), ("core.backward", "core.tape"),
    ("core.unfolding", "core.tape"), ("core.fused", "core.tape"),
}  # fmt: skip

# Outside core: the first part of the module's name -> what it may import besides the standard
# library. A folder name allows all of it; "properties" alone is never allowed to a judge.
COMMAND = {"logitproof", "numpy", "mpmath", "hypothesis", "core", "properties", "golden"}
JUDGES = {f"properties.{name}" for name in (
    "oracles", "scalar", "bounds", "truth", "compare", "gradcheck",
)}  # fmt: skip
LAW_TOOLS = {*JUDGES, "properties.strategies"}
MODEL_TOOLS = {
    "properties.laws", "properties.invalid", "properties.situations", "properties.interrupts",
    "hypothesis", "numpy", "mpmath", "core",
}  # fmt: skip
MAY_IMPORT = {
    "core": {"numpy", "core"},
    "root": COMMAND,
    "properties.__init__": set[str](),
    "properties.profiles": {"hypothesis"},
    "properties.rounding": {"mpmath", "numpy"},
    "properties.rounding_inputs": set[str](),
    "properties.oracles": {"mpmath"},
    "properties.scalar": {"properties.rounding", "mpmath"},
    "properties.bounds": {"mpmath", "properties.scalar"},
    "properties.truth": {"mpmath", "numpy", "properties.scalar"},
    "properties.compare": {"numpy", "mpmath"},
    "properties.gradcheck": {"numpy", "mpmath"},
    "properties.laws": {
        *LAW_TOOLS,
        "properties.enumeration",
        "properties.rounding_inputs",
        "golden.figures",
        "numpy",
    },
    "properties.strategies": {"hypothesis", "numpy", "core"},
    "properties.invalid": {"hypothesis", "numpy", "core"},
    "properties.situations": {"numpy", "core"},
    "properties.interrupts": {"core"},
    "properties.regrouping": {"numpy", "core"},
    "properties.health": {"core"},
    "properties.decoding": {"numpy", "core", "properties.interrupts"},
    "properties.machines": {*LAW_TOOLS, *MODEL_TOOLS},
    "properties.tape_machine": MODEL_TOOLS,
    "properties.faults": {
        *LAW_TOOLS,
        *MODEL_TOOLS,
        "properties.narrow_ops",
        "properties.subjects",
        "properties.textbook",
    },
    "properties.subjects": COMMAND,
    "properties.chunks": set[str](),
    "properties.foreign_subject": {
        "properties.chunks",
        "properties.laws.protocol",
        "properties.scalar",
        "numpy",
    },
    "properties.detective": {
        *JUDGES,
        "properties.laws.levels",
        "properties.laws.protocol",
        "numpy",
        "mpmath",
    },
    "properties.detected": {"properties.detective", "properties.scalar"},
    "properties.detect_command": COMMAND,
    "properties.scalar_parts": {"numpy", "properties.scalar"},
    "properties.taps": {"core", "numpy", "properties.laws.protocol", "properties.scalar"},
    "properties.components": {
        "core",
        "properties.allocations",
        "properties.counting",
        "properties.elsewhere",
        "properties.interrupts",
        "properties.invalid",
        "properties.workspaces",
    },
    "properties.elsewhere": {"numpy", "core"},
    "properties.narrow_ops": {"numpy"},
    "properties.textbook": {"numpy", "properties.scalar"},
    "properties.reordering": {"numpy", "properties.scalar", "properties.textbook"},
    "properties.leaning": {"properties.scalar", "properties.subjects"},
    "properties.decoder_strategies": {"hypothesis", "properties.laws"},
    "properties.reported": set[str](),
    "properties.operands": {"hypothesis", "numpy", "properties.rounding_inputs"},
    "properties.loops": {"numpy", "properties.rounding_inputs"},
    "properties.cli": COMMAND,
    "properties.allocations": {"numpy", "core"},
    "properties.counting": {"core", "properties.interrupts", "properties.scalar"},
    "properties.workspaces": {"core"},
    "properties.enumeration": set[str](),
    "properties.mutations": set[str](),
    "properties.refusals": {"core"},
    "properties.record_strategies": {"hypothesis", "core"},
    "properties.record_fuzz": {"core"},
    "properties.killing": {
        "core",
        "properties.faults",
        "properties.foreign_subject",
        "properties.laws",
        "properties.narrow_ops",
        "properties.subjects",
        "properties.textbook",
    },
    "properties.kill_table": {"properties.faults", "properties.killing"},
    "properties.reach": {"properties.faults", "properties.killing", "properties.laws"},
    "properties.mutants": {*COMMAND, "cosmic_ray"},
    "properties.fault_command": COMMAND,
    "properties.law_command": COMMAND,
    "properties.plan_command": COMMAND,
    "properties.plan_table": COMMAND,
    "properties.config_json": COMMAND,
    "properties.portability": COMMAND,
    "properties.demos": COMMAND,
    "properties.verify": COMMAND,
    "properties.adapters": COMMAND,
    "properties.suite": {"pytest", *COMMAND},
    "properties.peers": {"numpy", "torch", "autograd", "jax"},
    "properties.bench": {*COMMAND, "matplotlib"},
    "golden.__init__": set[str](),
    "golden.figures": set[str](),
    "golden.finding": set[str](),
    "golden.kinds": set[str](),
    "golden.load": {"golden.kinds"},
    "golden.lines": {"golden.load"},
    "golden.tensors": set[str](),
    "golden.export": {"properties.scalar", "golden"},
    "golden.schema": set[str](),
    "golden.write": {"golden.load"},
    "golden.judge": {"golden.load"},
    "golden.derive": {
        "properties.oracles",
        "properties.scalar",
        "properties.bounds",
        "properties.enumeration",
        "mpmath",
        "golden.load",
    },
    "golden.run": COMMAND,
    "golden.run_records": COMMAND,
    "golden.run_figures": COMMAND,
    "golden.run_scalar": COMMAND,
    "golden.run_layers": COMMAND,
    "golden.staged": {"golden"},
    "golden.pins": {"golden"},
    "golden.check": {"golden"},
    "golden.regenerate": {"golden"},
    "golden.command": COMMAND,
    "tests": {"pytest", "suite", *COMMAND},
}
# Adapters that import their framework, because what makes them imports these modules late.
FRAMEWORKS = {
    "properties.adapters.torch_model": {"torch"},
    "properties.adapters.torch_faults": {"torch"},
    "properties.adapters.torch_operations": {"torch"},
}
LAZY = {("core.rounded", "mpmath"), ("core.exact", "mpmath")}  # undecided roundings are rare

# Modules of core in which the order of additions and the rounding of functions are written down.
BIT_MODULES = {"exact", "logarithm", "rounded", "floats", "kernels"}
# Names under which other modules of core reach those, or operations made of them.
BIT_NAMES = {*BIT_MODULES, "kernel", "ops"}
ORDER_METHODS = {
    "sum", "mean", "dot", "prod", "cumsum", "cumprod", "var", "std", "trace",
}  # fmt: skip
NUMPY_BITS = {
    *ORDER_METHODS, "average", "convolve", "correlate", "einsum", "einsum_path", "fft", "inner",
    "linalg", "matmul", "matvec", "nanmean", "nansum", "tensordot", "trapezoid", "vdot", "vecdot",
    "vecmat", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt",
    "cos", "cosh", "exp", "exp2", "expm1", "float_power", "hypot", "log", "log10", "log1p", "log2",
    "logaddexp", "logaddexp2", "pow", "power", "sin", "sinc", "sinh", "tan", "tanh", "random",
}  # fmt: skip
MATH_EXACT = {
    "ceil", "comb", "copysign", "e", "fabs", "factorial", "floor", "frexp", "gcd", "inf",
    "isfinite", "isinf", "isnan", "isqrt", "lcm", "ldexp", "modf", "nan", "nextafter", "perm",
    "pi", "prod", "sqrt", "trunc", "ulp",
}  # fmt: skip
UFUNC_ORDERS = {"accumulate", "at", "reduce", "reduceat"}
ROUNDING_UFUNCS = {"add", "subtract", "multiply", "divide", "true_divide"}
RANDOM_MODULES = {"random", "secrets", "numpy.random"}

MODULE_LINES = 400  # of code: without blank lines, comments and docstrings
LAYOUT_TOKENS = {
    tokenize.COMMENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.NEWLINE,
    tokenize.NL,
}  # fmt: skip
FUNCTION_LINES = 60  # without the docstring: a screen
NESTING = 3
TEST_LINES = 15
# Path or function -> why it is longer; an entry that is no longer needed fails.
LONGER: dict[str, str] = {}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("root", *parts[2:]) if parts[:2] == ("core", "_root") else parts)


def subject(module: str) -> str:
    """The row of the table: `core`, `tests`, `root`, or folder and first name."""
    folder, *rest = module.split(".")
    return f"{folder}.{rest[0]}" if folder in ("properties", "golden") else folder


def imports(tree: ast.AST, module: str) -> Iterator[tuple[ast.stmt, str]]:
    """Every name imported, as (statement, dotted name).

    Ours come without `logitproof.`; an absolute import of a bare folder is marked as such.
    """
    package = module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        if isinstance(node, ast.Import) or not node.level:
            names = [f"bare {name}" if name.split(".")[0] in FOLDERS else name for name in names]
        yield from ((node, name.removeprefix("logitproof.")) for name in names)


def is_allowed(name: str, allowed: set[str]) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names or name == "__version__":
        return True
    return any(name == item or name.startswith(f"{item}.") for item in allowed)


def top_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements at module level, those under a module-level `if` included."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


def import_faults(tree: ast.Module, module: str) -> list[str]:
    """Imports outside the module's row, not at the top, or by `*`."""
    if subject(module) not in MAY_IMPORT:
        return [f"{module} has no row in the table of imports"]
    rows = (MAY_IMPORT[subject(module)], FRAMEWORKS.get(module, set()))
    allowed = {subject(module)}.union(*rows) - {"tests"}  # nobody imports tests
    top = list(top_statements(tree))
    faults = []
    for node, name in imports(tree, module):
        lazy = (module, name.split(".")[0]) in LAZY
        if not (is_allowed(name, allowed) or lazy):
            faults.append(f"{node.lineno}: imports {name}")
        if (node in top) == lazy:
            faults.append(f"{node.lineno}: imports {name} {'at the top' if lazy else 'inside'}")
        if name.endswith("*"):
            faults.append(f"{node.lineno}: imports *")
    return faults


def module_of(name: str, modules: Container[str]) -> str | None:
    """The module that an imported name is, or lies in."""
    parent = name.rpartition(".")[0]
    candidates = (name, parent, f"{name}.__init__", f"{parent}.__init__")
    return next((module for module in candidates if module in modules), None)


def type_only(tree: ast.Module, module: str) -> set[str]:
    """The modules that the table lets this one import for types, where it does so."""
    guarded = [
        statement
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
    ]
    targets = {target for source, target in TYPE_ONLY if source == module}
    placed = [(node, module_of(name, targets)) for node, name in imports(tree, module)]
    running = {target for node, target in placed if target and node not in guarded}
    return targets - running


def import_graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Our modules, each with those of ours that it imports."""
    graph: dict[str, set[str]] = {}
    for module, tree in trees.items():
        targets = {module_of(name, trees) for _, name in imports(tree, module)}
        graph[module] = {target for target in targets if target} - type_only(tree, module)
    return graph


def core_targets(tree: ast.Module, module: str) -> set[str]:
    """The modules of core that a module of core imports."""
    names = (name.split(".") for _, name in imports(tree, module))
    targets = {parts[1] for parts in names if parts[0] == "core" and len(parts) > 1}
    return targets - {name.removeprefix("core.") for name in type_only(tree, module)}


def column_faults(name: str, targets: set[str]) -> list[str]:
    """Imports that do not go upward in the column of a module of core."""
    columns = [column for column in COLUMNS if name in column]
    above = {other for column in columns[:1] for other in column[: column.index(name)]}
    known = {other for column in COLUMNS for other in column}
    faults = [f"{name} imports {target}" for target in sorted(targets & known - above)]
    faults += [f"{name} imports {b}" for a, b in sorted(STRANGERS) if a == name and b in targets]
    return faults if columns else [f"{name} has no place in a column"]


def last_name(node: ast.expr) -> str:
    """`kernel` for `kernel`, for `context.kernel` and for `make().kernel`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_integer(node: ast.expr) -> bool:
    """Whether the text alone shows an integer: a length, a size, a count with its unit."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.Call(func=ast.Name(id="len" | "int" | "bool" | "ord")):
            return True
        case ast.Call(func=ast.Attribute(attr="bit_length" | "count" | "index" | "prod")):
            return True
        case ast.Compare():
            return True
        case ast.UnaryOp(operand=operand):
            return is_integer(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return not isinstance(op, ast.Div) and is_integer(left) and is_integer(right)
        case ast.IfExp(body=body, orelse=orelse):
            return is_integer(body) and is_integer(orelse)
        case ast.Subscript(value=value):
            return is_shape(value)
        case ast.Name() | ast.Attribute():
            return is_size(last_name(node))
    return False


def is_size(name: str) -> bool:
    units = ("_bytes", "_elements", "_macs", "_tokens", "_count", "_size", "_width", "_bits")
    return bool(re.fullmatch(r"[A-Z](_\w+)?|size|ndim|nbytes|itemsize|d_h", name)) or (
        name.endswith(units)
    )


def is_shape(node: ast.expr) -> bool:
    """`shape`, `x.shape`, `source_shape`, or a slice of one."""
    if isinstance(node, ast.Subscript):
        return is_shape(node.value)
    return last_name(node).endswith(("shape", "sizes", "lengths"))


def sums_integers(call: ast.Call) -> bool:
    """Whether `sum(...)` or `math.prod(...)` visibly runs over integers."""
    over = call.args[0] if call.args else call
    if isinstance(over, ast.GeneratorExp | ast.ListComp):
        return is_integer(over.elt)
    return is_shape(over)


def call_fault(call: ast.Call) -> str | None:
    """A built-in or a method that adds in an order of its own, or rounds by the C library."""
    match call.func:
        case ast.Name(id="sum") if not sums_integers(call):
            return "built-in sum over what may be floats"
        case ast.Name(id="pow") if len(call.args) == 2:
            return "built-in pow"
        case ast.Attribute(value=ast.Name(id="math"), attr="prod") if not sums_integers(call):
            return "math.prod over what may be floats"
        case ast.Attribute(value=ast.Name(id="np"), attr=_):
            return None  # named by attribute_fault
        case ast.Attribute(value=owner, attr=attr) if attr in ORDER_METHODS:
            return None if last_name(owner) in {*BIT_NAMES, "math"} else f".{attr}()"
    return None


def attribute_fault(node: ast.Attribute) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id="np"), attr=attr) if attr in NUMPY_BITS:
            return f"np.{attr}"
        case ast.Attribute(value=ast.Name(id="math"), attr=attr) if attr not in MATH_EXACT:
            return f"math.{attr}"
        case ast.Attribute(value=ast.Attribute(attr=ufunc), attr=order):
            if ufunc in ROUNDING_UFUNCS and order in UFUNC_ORDERS:
                return f"{ufunc}.{order}"
    return None


def import_form_fault(node: ast.Import | ast.ImportFrom) -> str | None:
    """Forms that would hide a function from the checks above."""
    if isinstance(node, ast.ImportFrom):
        taken = {alias.name for alias in node.names}
        hidden = {"numpy": NUMPY_BITS, "math": taken - MATH_EXACT}.get(node.module or "", set())
        rest = {"cmath", "statistics", "operator"} & {node.module}
        return f"from {node.module} import …" if taken & hidden or rest else None
    for alias in node.names:
        if alias.name in {"cmath", "statistics", "operator"}:
            return f"import {alias.name}"
        if alias.name in {"numpy", "math"} and (alias.asname or alias.name) not in {"np", "math"}:
            return f"import {alias.name} under another name"
    return None


def bit_fault(node: ast.AST) -> str | None:
    """What decides bits at this node, or None."""
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            return "@"
        case ast.BinOp(left=ast.Constant(value=2.0), op=ast.Pow(), right=right) if is_integer(
            right
        ):
            return None  # 2.0**-53: exact
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return None if is_integer(left) and is_integer(right) else "**"
        case ast.AugAssign(op=ast.Pow()):
            return "**="
        case ast.Call():
            return call_fault(node)
        case ast.Attribute():
            return attribute_fault(node)
        case ast.Import() | ast.ImportFrom():
            return import_form_fault(node)
        case ast.For(iter=over) | ast.comprehension(iter=over) if is_set(over):
            return "iterates a set: its order changes from run to run"
    return None


def is_set(node: ast.expr) -> bool:
    made = isinstance(node, ast.Call) and last_name(node.func) in {"set", "frozenset"}
    return made or isinstance(node, ast.Set | ast.SetComp)


def bit_faults(tree: ast.AST) -> list[str]:
    found = ((node, bit_fault(node)) for node in ast.walk(tree))
    return [f"{getattr(node, 'lineno', '')}: {fault}" for node, fault in found if fault]


def random_faults(tree: ast.Module, module: str) -> list[str]:
    """Imports or uses of generators other than SplitMix64."""
    taken = {name for _, name in imports(tree, module)} & RANDOM_MODULES
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return sorted(taken | {name for name in used if name.startswith(("np.random", "numpy.random"))})


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of the body, the docstring left out."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def nesting(node: ast.AST, depth: int = 0) -> int:
    """The deepest block of a function; `elif` does not nest."""
    blocks = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
    deepest = depth
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deeper = isinstance(child, blocks) and not is_elif
        deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


def code_lines(text: str) -> int:
    """Lines that hold code: no blank line, comment or docstring."""
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = (token for token in tokens if token.type not in LAYOUT_TOKENS)
    lines = {line for token in code for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - prose)


def size_faults(tree: ast.Module, lines: int, path: str) -> list[str]:
    sizes = {} if path.startswith("tests/") else {path: (lines, MODULE_LINES)}
    for function in functions(tree):
        limit = TEST_LINES if function.name.startswith("test_") else FUNCTION_LINES
        sizes[f"{path}::{function.name}"] = (body_lines(function), limit)
    faults = [f"{name}: {n} lines" for name, (n, most) in sizes.items()
              if (n > most) != (name in LONGER)]  # fmt: skip
    deep = [f.name for f in functions(tree) if nesting(f) > NESTING]
    return faults + [f"{path}::{name}: nested deeper than {NESTING}" for name in deep]


def form_faults(tree: ast.Module) -> list[str]:
    """Loops and branches in tests, and mocks."""
    tests = [f for f in functions(tree) if f.name.startswith("test_")]
    control = (ast.For, ast.While, ast.If, ast.Try, ast.Match)
    faults = [f"{node.lineno}: control flow in {test.name}" for test in tests
              for node in ast.walk(test) if isinstance(node, control)]  # fmt: skip
    names = {name for _, name in imports(tree, "tests.x")} | {
        argument.arg for test in tests for argument in test.args.args
    }
    return faults + [f"mock: {name}" for name in sorted(names) if "mock" in name]


def has_cycle(trees: dict[str, ast.Module]) -> bool:
    try:
        TopologicalSorter(import_graph(trees)).prepare()
    except CycleError:
        return True
    return False


# The tree as it stands.


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_a_module_imports_what_its_row_allows(path: Path) -> None:
    assert import_faults(parsed(path), module_name(path)) == []


@pytest.mark.parametrize("path", CORE, ids=label)
def test_core_imports_upward(path: Path) -> None:
    module = module_name(path)
    name = module.removeprefix("core.")
    own = (
        []
        if module.startswith("root.")
        else column_faults(name, core_targets(parsed(path), module))
    )
    assert own == []


def test_imports_have_no_cycle() -> None:
    assert not has_cycle({module_name(path): parsed(path) for path in SOURCES})


@pytest.mark.parametrize("path", [path for path in CORE if path.stem not in BIT_MODULES], ids=label)
def test_bits_are_decided_in_few_modules(path: Path) -> None:
    assert bit_faults(parsed(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_one_generator_draws(path: Path) -> None:
    assert random_faults(parsed(path), module_name(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_modules_and_functions_stay_small(path: Path) -> None:
    assert (
        size_faults(parsed(path), code_lines(path.read_text(encoding="utf-8")), label(path)) == []
    )


@pytest.mark.parametrize("path", CORE, ids=label)
def test_core_holds_no_planted_fault(path: Path) -> None:
    names = {node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)}
    assert names & {fault.replace("-", "_") for fault in REGISTRY} == set()


@pytest.mark.parametrize("path", TESTS, ids=label)
def test_tests_are_sentences_without_loops_or_mocks(path: Path) -> None:
    assert form_faults(parsed(path)) == []


# The checks themselves: what they must catch, and what they must let pass.


@pytest.mark.parametrize(
    "text",
    [
        "y = a @ b",
        "a @= b",
        "y = np.dot(a, b)",
        "y = a.dot(b)",
        "y = np.einsum('ij->i', a)",
        "y = a.sum(axis=0)",
        "y = (a * b).mean()",
        "y = tensor.value.sum()",
        "y = np.exp(a)",
        "f = np.log",
        "y = np.power(a, 2.0)",
        "y = np.linalg.norm(a)",
        "y = np.add.reduce(a)",
        "np.add.at(a, i, b)",
        "y = math.exp(x)",
        "y = math.fsum(xs)",
        "y = math.prod(xs)",
        "from math import exp",
        "from numpy import dot",
        "import numpy",
        "import numpy as xp",
        "import statistics",
        "y = x ** 0.5",
        "y = x ** 2",
        "y = pow(x, 2)",
        "y = sum(xs)",
        "y = sum(x * y for x, y in pairs)",
        "y = sum(n / 2 for n in shape)",
        "for name in {'a', 'b'}: pass",
        "y = [p for p in set(parents)]",
    ],
)
def test_a_planted_rounding_is_caught(text: str) -> None:
    assert len(bit_faults(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "y = floats.exp(a)",
        "y = floats.sum(a, axis=0)",
        "y = ops.matmul(a, b)",
        "y = context.kernel.dot(a, b)",
        "y = math.sqrt(x) + np.sqrt(x)",
        "n = math.prod(shape) + math.prod(a.shape[1:])",
        "n = sum(len(row) for row in rows)",
        "n = sum(parameter.value.size for parameter in parameters)",
        "n = sum(group.total_elements for group in groups)",
        "n = sum(i == j for i, j in pairs)",
        "n = 2**64 - 1",
        "n = 2**T",
        "x = n * 2.0**-53",
        "y = np.maximum.reduce(a)",
        "from math import isfinite, sqrt",
        "for name in sorted({'a', 'b'}): pass",
    ],
)
def test_integers_and_exact_functions_pass(text: str) -> None:
    assert bit_faults(ast.parse(text)) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.ops", "import mpmath"),
        ("core.ops", "import hypothesis"),
        ("core.ops", "from logitproof.properties import oracles"),
        ("core.ops", "from .errors import *"),
        ("core.ops", "from core import errors"),
        ("tests.test_ops", "import core.ops"),
        ("core.ops", "def f():\n    from . import errors"),
        ("core.exact", "import mpmath"),
        ("properties.oracles", "import numpy as np"),
        ("properties.scalar", "from logitproof.core import floats"),
        ("properties.laws.text", "from logitproof.core import ops"),
        ("properties.laws.text", "from .. import faults"),
        ("properties.unheard_of", "import os"),
        ("golden.load", "import numpy as np"),
        ("golden.derive", "from logitproof.core import ops"),
        ("tests.test_ops", "from tests import test_tape"),
        ("tests.test_ops", "from . import test_tape"),
    ],
)
def test_a_planted_import_is_caught(module: str, text: str) -> None:
    assert import_faults(ast.parse(text), module) != []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core.ops", "import numpy as np\nfrom . import errors"),
        ("core.exact", "def f():\n    import mpmath.libmp"),
        ("core.tape", "if TYPE_CHECKING:\n    from .errors import Code"),
        ("properties.laws.text", "from .. import compare, oracles"),
        ("golden.derive", "from logitproof.properties import scalar\nfrom . import load"),
        ("tests.test_ops", "import pytest\nfrom logitproof.core import ops"),
    ],
)
def test_an_import_of_the_row_passes(module: str, text: str) -> None:
    assert import_faults(ast.parse(text), module) == []


@pytest.mark.parametrize(
    ("name", "targets", "count"),
    [
        ("layers", {"floats", "ops"}, 0),
        ("build", {"planner", "session"}, 0),
        ("floats", {"ops"}, 1),
        ("tape", {"ops"}, 1),
        ("records", {"kernels"}, 1),
        ("text", {"planner"}, 1),
        ("tape", {"tape"}, 1),
        ("misc", set[str](), 1),
    ],
)
def test_a_planted_downward_import_is_caught(name: str, targets: set[str], count: int) -> None:
    assert len(column_faults(name, targets)) == count


def test_a_planted_cycle_is_caught() -> None:
    sources = {
        "core.a": "from . import b",
        "core.b": "from .c import x",
        "core.c": "from . import a",
    }
    assert has_cycle({name: ast.parse(text) for name, text in sources.items()})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("if TYPE_CHECKING:\n    from .backbone import DecoderBackbone", 0),
        ("from .backbone import DecoderBackbone", 1),
        ("if TYPE_CHECKING:\n    from .session import DecodeSession", 1),
    ],
)
def test_a_type_goes_downward_where_the_table_says_so(text: str, count: int) -> None:
    targets = core_targets(ast.parse(text), "core.prepared")
    assert len(column_faults("prepared", targets)) == count


@pytest.mark.parametrize(
    "text", ["import random", "from numpy import random", "rng = np.random.default_rng(1)"]
)
def test_a_planted_generator_is_caught(text: str) -> None:
    assert random_faults(ast.parse(text), "tests.test_ops") != []


def test_code_is_counted_without_its_prose() -> None:
    assert (
        code_lines('"""Doc\n\nmore."""\n\n# why\nx = (1,\n     2)\n\ndef f():\n    """Doc."""\n')
        == 3
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1", MODULE_LINES + 1),
        ("def f():\n" + "    x = 1\n" * (FUNCTION_LINES + 1), 1),
        ("def test_f():\n" + "    x = 1\n" * (TEST_LINES + 1), 1),
        ("def f():\n if a:\n  for b in c:\n   with d:\n    while e: pass", 1),
    ],
    ids=["module", "function", "test", "nesting"],
)
def test_a_planted_size_is_caught(text: str, lines: int) -> None:
    assert len(size_faults(ast.parse(text), lines, "core/planted.py")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def test_f():\n    for x in y: pass",
        "def test_f():\n    if x: pass",
        "from unittest import mock",
        "def test_f(mocker): pass",
    ],
)
def test_a_planted_loop_or_mock_is_caught(text: str) -> None:
    assert form_faults(ast.parse(text)) != []


CODES = sorted(
    target.id
    for node in ast.walk(parsed(ROOT / "core" / "codes.py"))
    if isinstance(node, ast.ClassDef)
    for member in node.body
    if isinstance(member, ast.Assign)
    for target in member.targets
    if isinstance(target, ast.Name)
)


@cache
def named_codes() -> set[str]:
    """The members of Code named in a test, or planted among the near misses."""
    near_misses = [path for path in SOURCES if path.is_relative_to(ROOT / "properties" / "invalid")]
    return {
        node.attr
        for path in (*TESTS, *near_misses)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
    }


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_named_where_it_is_raised(code: str) -> None:
    assert code in named_codes()
