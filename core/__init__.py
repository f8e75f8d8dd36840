"""The system: token ids to logits and loss, every bit specified."""

if "." not in __name__:  # pragma: no cover - a child process of test_project runs this
    raise ImportError("import logitproof.core; a bare 'core' is a second copy under a wrong name")

from . import floats, ops
from .attention import Attention
from .backbone import DecoderBackbone
from .batches import TextBatch, pack_documents, pad_documents
from .block import DecoderBlock
from .cache import KvCache
from .config import DecoderBlockConfig, DecoderConfig
from .errors import (
    AdmissionRefusal,
    BindingRefusal,
    CapacityRefusal,
    Code,
    IndexRefusal,
    NumericRefusal,
    RecordRefusal,
    Refusal,
    ShapeRefusal,
    StateRefusal,
    SupportRefusal,
)
from .initial import SplitMix64
from .layers import Embedding, Linear, RmsNorm, SwiGlu
from .layout import SequenceLayout
from .prepared import InputEncoder, PreparedDecoderInput
from .session import DecodeSession
from .tape import NO_GRAD, RECORDING, Context, Parameter, Tensor, constant
from .text import Decoder, TextInputEncoder, TextOutputHead
from .tokenizer import BpeTokenizer
from .trace import Trace

__all__ = [
    "NO_GRAD",
    "RECORDING",
    "AdmissionRefusal",
    "Attention",
    "BindingRefusal",
    "BpeTokenizer",
    "CapacityRefusal",
    "Code",
    "Context",
    "DecodeSession",
    "Decoder",
    "DecoderBackbone",
    "DecoderBlock",
    "DecoderBlockConfig",
    "DecoderConfig",
    "Embedding",
    "IndexRefusal",
    "InputEncoder",
    "KvCache",
    "Linear",
    "NumericRefusal",
    "Parameter",
    "PreparedDecoderInput",
    "RecordRefusal",
    "Refusal",
    "RmsNorm",
    "SequenceLayout",
    "ShapeRefusal",
    "SplitMix64",
    "StateRefusal",
    "SupportRefusal",
    "SwiGlu",
    "Tensor",
    "TextBatch",
    "TextInputEncoder",
    "TextOutputHead",
    "Trace",
    "constant",
    "floats",
    "ops",
    "pack_documents",
    "pad_documents",
]
