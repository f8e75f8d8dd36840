"""Hugging Face Llama models under test, built from a configuration; nothing is downloaded.

`logitproof verify --decoder logitproof.properties.adapters.transformers_llama:float32_sdpa`: a
name is a choice of each of `CHOICES`, in any order, the first of each where none is named.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from logitproof.properties.chunks import ChunkSession, Newest
from logitproof.properties.laws.protocol import Arrays, Ids, Valid
from logitproof.properties.scalar import Config, Layout

from .torch_module import CLAIMS, chosen_of

__all__ = ["CHOICES", "LlamaSession", "LlamaSubject", "named"]

# padding:    the side of a row on which its inactive cells stand
# arithmetic: "honest" is judged as what its dtype says; "mixed" declares that a float64 model has
#             steps in float32; "wide" puts float64 norms, rotation tables and loss in their place
CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("float64", "float32"),
    "attention": ("eager", "sdpa"),
    "cache": ("dynamic", "static"),
    "padding": ("right", "left"),
    "arithmetic": ("honest", "mixed", "wide"),
}
IGNORED = -100  # the target of a cell that does not count
BESIDE = 2  # cells of padding before a text that is decoded left-padded, beside a longer one
ROLES = {
    "attention_norm.gain": "input_layernorm",
    "attention.query.weight": "self_attn.q_proj",
    "attention.key.weight": "self_attn.k_proj",
    "attention.value.weight": "self_attn.v_proj",
    "attention.output.weight": "self_attn.o_proj",
    "ffn_norm.gain": "post_attention_layernorm",
    "ffn.gate.weight": "mlp.gate_proj",
    "ffn.up.weight": "mlp.up_proj",
    "ffn.down.weight": "mlp.down_proj",
}
WHOLE = {
    "token_embedding.weight": "model.embed_tokens",
    "final_norm.gain": "model.norm",
    "head.weight": "lm_head",
}
ROTATED = (".query.weight", ".key.weight")


class LlamaSubject:
    """`LlamaForCausalLM` under test, with its own loss.

    Matrices are turned [out, in] on the way in, and the features of each rotated head put even
    ones first, for the model turns feature i with i + d_h/2; gradients and taps are put back.
    """

    capabilities = CLAIMS

    def __init__(
        self,
        dtype: str = "float64",
        attention: str = "eager",
        cache: str = "dynamic",
        padding: str = "right",
        arithmetic: str = "honest",
    ) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when it is imported
        self.torch: Any = importlib.import_module("torch")
        self.library: Any = importlib.import_module("transformers")
        self.dtype, self.attention, self.cache = getattr(self.torch, dtype), attention, cache
        self.padding, self.arithmetic = padding, arithmetic
        mixed = {"arithmetic": "float32"} if arithmetic == "mixed" else {}
        self.conventions: Mapping[str, str] = {
            "functions": "c-library", "dtype": dtype, "padding": padding, **mixed,
        }  # fmt: skip

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """A model of these sizes, holding the weights."""
        self.config = config
        sizes = self.library.LlamaConfig(
            vocab_size=config.vocabulary_size,
            hidden_size=config.model_width,
            intermediate_size=config.feed_forward_width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads or config.heads,
            max_position_embeddings=config.max_positions,
            rms_norm_eps=config.rms_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
            tie_word_embeddings=config.tied,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation=self.attention,
        )
        with self.torch.random.fork_rng(devices=[]):  # the weights it draws are written over
            self.model: Any = self.library.LlamaForCausalLM(sizes).to(self.dtype).eval()
        modules = dict(self.model.named_modules())
        self.places = {name: modules[place] for name, place in self._names(weights)}
        with self.torch.no_grad():
            for name, value in weights.items():
                array = self._theirs(name, np.array(value, dtype=np.float64))
                self.places[name].weight.copy_(self.torch.tensor(array))
        if self.arithmetic == "wide":
            _widen(self.torch, modules, self.model, config)

    def logits(self, ids: Ids, layout: Layout | None = None) -> Any:
        """[B, T, V]"""
        with self.torch.no_grad():
            answer = self.model(**self._batch(ids, layout), use_cache=False).logits
        return self._back(_array(answer), layout)

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[Any, Arrays]:
        """Its own loss over targets that are not shifted once more, and one reverse pass."""
        wanted = np.array(targets)
        counts = np.array(ids) >= 0 if valid is None else np.array(valid)
        labels = self._tensor(self._moved(np.where(counts, wanted, IGNORED), layout, IGNORED))
        self.model.zero_grad(set_to_none=True)
        batch = self._batch(ids, layout)
        loss = self.model(**batch, labels=labels, shift_labels=labels, use_cache=False).loss
        loss.backward()
        gradients = {
            name: self._ours(name, _array(_gradient(self.torch, module.weight)))
            for name, module in self.places.items()
        }
        return loss.detach().numpy()[()], gradients

    def taps(self, ids: Ids, layout: Layout | None = None) -> Arrays:
        """What modules were given and gave; probabilities where attention is eager."""
        seen: dict[str, Any] = {}
        with _watched(self.model, seen), self.torch.no_grad():
            self.model(**self._batch(ids, layout), use_cache=False)
        return {
            name: self._back(np.ascontiguousarray(value), layout)
            for name, value in self._stages(seen)
        }

    def session(self) -> LlamaSession:
        """Cached decoding of one text."""
        return LlamaSession(self)

    def new_cache(self) -> Any:
        """An empty one."""
        if self.cache == "dynamic":
            return self.library.DynamicCache(config=self.model.config)
        return self.library.StaticCache(
            config=self.model.config, max_cache_len=self.config.max_positions + BESIDE
        )

    def _names(self, weights: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name in weights:
            if name in WHOLE:
                yield name, WHOLE[name]
            else:
                _, layer, role = name.split(".", 2)
                yield name, f"model.layers.{layer}.{ROLES[role]}"

    def _order(self, features: int) -> Any:
        """Of all heads' features, even ones first within each head."""
        d_h = self.config.head_width
        return np.arange(features).reshape(-1, d_h // 2, 2).transpose(0, 2, 1).reshape(-1)

    def _theirs(self, name: str, value: Any) -> Any:
        if value.ndim == 1 or name in WHOLE:
            return value
        return value.T[self._order(value.shape[1])] if name.endswith(ROTATED) else value.T

    def _ours(self, name: str, value: Any) -> Any:
        if value.ndim == 1 or name in WHOLE:
            return value
        if name.endswith(ROTATED):
            value = value[np.argsort(self._order(value.shape[0]))]
        return np.ascontiguousarray(value.T)

    def _tensor(self, array: Any) -> Any:
        return self.torch.tensor(np.ascontiguousarray(array))

    def _batch(self, ids: Ids, layout: Layout | None) -> dict[str, Any]:
        """What a user hands over: a mask for padding; positions alone for packed rows."""
        tokens = self._tensor(self._moved(np.maximum(np.array(ids), 0), layout, 0))
        if layout is None:
            return {"input_ids": tokens}
        positions = self._tensor(self._moved(np.array(layout.positions), layout, 0))
        batch = {"input_ids": tokens, "position_ids": positions}
        if not np.any(layout.range_starts):
            active = np.arange(layout.shape[1]) < np.array(layout.lengths)[:, None]
            batch["attention_mask"] = self._tensor(self._moved(active, layout, False)).long()
        return batch

    def _shifts(self, layout: Layout | None) -> list[int]:
        """Cells by which each row stands further right."""
        if layout is None or self.padding == "right":
            return []
        return [layout.shape[1] - length for length in layout.lengths]

    def _moved(self, array: Any, layout: Layout | None, blank: Any) -> Any:
        """[B, T] with the padding on its side."""
        array = array.copy()
        for row, shift in zip(array, self._shifts(layout), strict=False):
            row[:] = np.roll(row, shift)
            row[:shift] = blank
        return array

    def _back(self, array: Any, layout: Layout | None) -> Any:
        """[B, T, ...] or [B, H, T, ...] with every row at the left again; keys too."""
        shifts = self._shifts(layout)
        for b, shift in enumerate(shifts):
            axis = 0 if array.ndim == 3 else 1
            array[b] = np.roll(array[b], -shift, axis=axis)
            if array.ndim == 4 and array.shape[2] == array.shape[3]:
                array[b] = np.roll(array[b], -shift, axis=2)
        return array

    def _stages(self, seen: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for place, name in (("model.embed_tokens", "embeddings"), ("model.norm", "hidden")):
            yield name, seen[place][1]
        for layer in range(self.config.layers):
            at, block = f"model.layers.{layer}", f"blocks.{layer}"
            yield f"{block}.attention_norm", seen[f"{at}.input_layernorm"][1]
            for name in ("query", "key"):
                heads = self._heads(seen[f"{at}.self_attn.{name[0]}_proj"][1])
                yield f"{block}.{name}_unrotated", heads[..., np.argsort(self._order_of_head())]
            yield f"{block}.value", self._heads(seen[f"{at}.self_attn.v_proj"][1])
            if self.attention == "eager":
                yield f"{block}.probabilities", seen[f"{at}.self_attn"][2]
            yield f"{block}.mix", self._heads(seen[f"{at}.self_attn.o_proj"][0])
            yield f"{block}.attention_residual", seen[f"{at}.post_attention_layernorm"][0]
            yield f"{block}.ffn_norm", seen[f"{at}.post_attention_layernorm"][1]
            yield f"{block}.gate", seen[f"{at}.mlp.gate_proj"][1]
            yield f"{block}.up", seen[f"{at}.mlp.up_proj"][1]
            yield f"{block}.product", seen[f"{at}.mlp.down_proj"][0]
            yield f"{block}.output", seen[at][1]
        yield "logits", seen["lm_head"][1]

    def _order_of_head(self) -> Any:
        return self._order(self.config.head_width)

    def _heads(self, features: Any) -> Any:
        """[B, T, H d_h] -> [B, H, T, d_h]"""
        B, T, _ = features.shape
        return features.reshape(B, T, -1, self.config.head_width).transpose(0, 2, 1, 3)


class LlamaSession(ChunkSession):
    """Tokens read so far; where padding is left, in a batch beside a longer text."""

    def __init__(self, subject: LlamaSubject) -> None:
        self.subject, self.length = subject, 0
        self.cache = subject.new_cache()
        self.before = BESIDE if subject.padding == "left" else 0

    def prefill(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind the prompt, whose row begins with the padding."""
        return self._read([0] * self.before + list(ids), len(ids))

    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind one more chunk."""
        return self._read(list(ids), len(ids))

    def _read(self, row: list[int], count: int) -> Newest:
        subject, tensor = self.subject, self.subject.torch.tensor
        end = self.length + count
        batch = {"input_ids": tensor([row])}
        if self.before:
            mask = np.ones((2, self.before + end), dtype=np.int64)
            mask[0, : self.before] = 0
            positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -len(row) :]
            batch = {
                "input_ids": tensor([row, [0] * len(row)]),
                "attention_mask": tensor(mask),
                "position_ids": tensor(positions),
            }
        with subject.torch.no_grad():
            answer = subject.model(**batch, cache=self.cache, use_cache=True)
        self.length = end
        return Newest(_array(answer.logits)[0, -1], end - 1)


def _array(tensor: Any) -> Any:
    return np.array(tensor.detach().numpy())


def _gradient(torch: Any, weight: Any) -> Any:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


@contextmanager
def _watched(model: Any, seen: dict[str, Any]) -> Iterator[None]:
    """Keeps of every module's call what it was given first, gave first and gave second."""

    def watch(name: str) -> Callable[..., None]:
        def keep(_: Any, given: Any, named: Any, gave: Any) -> None:
            first = given[0] if given else named.get("hidden_states")
            parts = gave if isinstance(gave, tuple) else (gave, None)
            seen[name] = tuple(
                _array(part) if hasattr(part, "detach") else None for part in (first, *parts[:2])
            )

        return keep

    hooks = [
        module.register_forward_hook(watch(name), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _widen(torch: Any, modules: Mapping[str, Any], model: Any, config: Config) -> None:
    """The steps that the library takes in float32 whatever the dtype, in the dtype instead."""

    def norm(module: Any) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            mean = x.pow(2).mean(-1, keepdim=True)
            return module.weight * (x * torch.rsqrt(mean + config.rms_epsilon))

        return forward

    def rotation(x: Any, position_ids: Any) -> Any:
        d_h = config.head_width
        frequencies = config.rope_base ** (-torch.arange(0, d_h, 2, dtype=x.dtype) / d_h)
        angles = (position_ids[..., None] * frequencies).repeat(1, 1, 2)
        return angles.cos(), angles.sin()

    def loss(logits: Any, shift_labels: Any, **_: Any) -> Any:
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), shift_labels.flatten(), ignore_index=IGNORED
        )

    for name, module in modules.items():
        if name.endswith(("layernorm", "model.norm")):
            module.forward = norm(module)
    model.model.rotary_emb.forward = rotation
    model.loss_function = loss


def named(name: str) -> Callable[[], LlamaSubject]:
    """The factory of a name. Raises AttributeError for a name with another choice."""
    chosen = chosen_of(CHOICES, name)
    return lambda: LlamaSubject(**chosen)


def __getattr__(name: str) -> Callable[[], LlamaSubject]:
    return named(name)
