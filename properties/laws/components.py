"""What an implementation offers whose parts are to be judged, not its decoder alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from logitproof.properties.scalar import Layout

from .difference import Values
from .drawn import Array
from .protocol import Capable, Ids

__all__ = ["Components"]


class Components(Capable, Protocol):
    """The methods behind the capabilities of parts.

    `parts` has the public names of API.md, `logitproof.core`, as far as the capabilities say:
    `operation-values` (ops, what they answer, by correctly rounded functions), `operations` (ops,
    what they refuse and how they lie in memory too), `functions` (floats), `tape` (RECORDING,
    NO_GRAD, Parameter, constant), `layers`, `sessions`, `tokenizer`, `records`, `planner`,
    `batches` (pad_documents, pack_documents).
    """

    @property
    def parts(self) -> Any:
        """The namespace of public names."""

    def narrow(self, format: str) -> Any:
        """`operations:float16`, `operations:bfloat16`: the operations in one of these formats.

        By name, as far as there are: arrays in, value and reverse rule out, add, mul, matmul, sum,
        mean, exp, log, silu, softmax, log_softmax and rotary of `properties.scalar.operations`;
        rms_norm(x, gain, epsilon=) gives the value alone. Arrays come as float64 and hold numbers
        of the format; answers do too, in whichever type. The convention `accumulation` is "format"
        where every step is rounded to it, "float32" where steps are float32 ones; it may be said
        of one operation, as `accumulation:softmax`.
        """

    @property
    def checks(self) -> Any:
        """`gradient-checks`: central_difference, compare, compare_sides, check_gradient."""

    @property
    def identities(self) -> Any:
        """`identities`: frame(domain, pairs), with the bytes that are hashed and the digest."""

    @property
    def tokens(self) -> Any:
        """`token-training`: learn_merges, inputs_and_targets; tokenizers have encode_with_trace."""

    @property
    def kernels(self) -> Iterable[Any]:
        """`copies`: what Decoder and the forwards of a DecoderBlock take as `kernel`; decoders tell
        theirs by that name.
        """

    def rotation(self, width: int, capacity: int, base: float) -> Any:
        """`layers`: a table with `rotate(x, offset, context=)` and `rotate_at(x, positions,
        context=)` over tensors.
        """

    def attended(self, query: Any, key: Any, value: Any) -> Mapping[str, Any]:
        """`layers`: scores, probabilities and mix of causal attention over tensors [N, T, d]."""

    def elsewhere(self, product: Callable[[Array, Array], Array]) -> AbstractContextManager[None]:
        """`elsewhere`: while open, the machine's own products of matrices are made by this one;
        then floats offers contract, row_products and total.
        """

    def session(self) -> Any:
        """`sessions`: a fresh session over the loaded decoder."""

    def resumed(self, session: Any) -> Any:
        """`sessions`: another session over the cache of one that ended."""

    def births(self, mode: str, rows: int, T: int) -> Iterable[tuple[int, int]]:
        """`lifetimes`: of every value made by the loaded decoder, its bytes and those alive then.

        A loss and its graph ("tracked-full"), a forward without one ("untracked-full"), one cached
        token after T - 1 others ("cached"), or a loss over recomputed blocks with its reverse pass
        ("recomputed"). Parameters, tables and caches are not counted.
        """

    def needed_bytes(self, rows: int, T: int) -> Iterable[int]:
        """`lifetimes`: what every operation of a loss and every reverse rule needs, traced."""

    def token_bytes(self, T: int) -> int:
        """`lifetimes`: what the last of T cached tokens needs at once, traced."""

    def recomputed_events(self, rows: int, T: int) -> Iterable[Any]:
        """`lifetimes`: the events planned for the last of these."""

    def measured(self, events: Iterable[tuple[str, str, int, int, str]]) -> Iterable[int]:
        """`lifetimes`: resident peak, workspace and combined peak of events.

        An event: action, name, bytes, workspace, and of whom where it is an alias or renamed.
        """

    def repeated(
        self,
        events: Iterable[tuple[str, str, int, int, str]],
        times: int,
        *,
        descending: bool,
        elide: bool,
        back: Iterable[tuple[str, str, int, int, str]] = (),
    ) -> Iterable[tuple[Any, ...]]:
        """`lifetimes`: name and owned bytes after each event, `{i}` the number of its round.

        Rounds that are elided: how many, bytes that each adds, owned bytes after them.
        Then as many rounds of `back`, in the other direction.
        """

    def counted(self, call: Callable[[], object]) -> Mapping[str, int]:
        """`counted-work`: how many "operations" of the tape a call takes, and "settled" roundings.

        A rounding is settled where only many digits tell it.
        """

    def loss_of(self, ids: Ids, targets: Ids) -> object:
        """`counted-work`: one recorded loss of the loaded decoder."""

    def value_types(self) -> Iterable[type]:
        """`records`: every kind of record, refusals among them."""

    def projection_fits(self, tokens: int, tokens_per_second: int, wall_seconds: int) -> bool:
        """`planner`: whether 3600 s and 1.5 times the tokens at this rate stay within the time."""

    def graph_bytes(self, ids: Ids, targets: Ids, *, recomputed: bool) -> int:
        """`graph-bytes`: what a loss's graph keeps alive, parameters among it."""

    def retained(self, tensor: Any) -> int:
        """`graph-bytes`: the bytes of all arrays that a tensor and the nodes above it hold."""

    def assign(self, name: str, value: Any) -> None:
        """`sessions`: another value for one parameter of the loaded decoder."""

    def rows(self, session: Any) -> bytes:
        """`sessions`: every bit that a session holds."""

    def cached(self, session: Any) -> Sequence[tuple[Values, Values]]:
        """`sessions`: per layer the committed rows, [H, length, d_h]: turned keys, then values."""

    def poison_unused_rows(self, session: Any, poison: float) -> None:
        """`sessions`: overwrites the cache behind the committed rows."""

    def hidden(self, embeddings: Any, layout: Layout | None) -> Values:
        """`prepared`: [B, T, D], the hidden states of given vectors under the loaded backbone."""

    def refused_in_order(self, start: int, step: int) -> Iterable[str]:
        """`boundaries`: every step-th boundary's near misses refused by another rule, in words.

        So is a call that breaks no rule and is refused.
        """

    def changed_by_refusals(self, start: int, step: int) -> Iterable[str]:
        """`boundaries`: every step-th boundary's near misses whose refusal left a trace."""

    def untold_by_refusals(self, start: int, step: int) -> Iterable[str]:
        """`boundaries`: every step-th boundary's refusals that do not tell or keep their facts."""
