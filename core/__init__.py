"""The system: token ids to logits and loss, every bit specified."""

if "." not in __name__:
    raise ImportError("import logitproof.core; a bare 'core' is a second copy under a wrong name")

from . import floats, ops
from .attention import Attention
from .backbone import DecoderBackbone
from .block import DecoderBlock
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
    "Decoder",
    "DecoderBackbone",
    "DecoderBlock",
    "DecoderBlockConfig",
    "DecoderConfig",
    "Embedding",
    "IndexRefusal",
    "InputEncoder",
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
    "TextInputEncoder",
    "TextOutputHead",
    "Trace",
    "constant",
    "floats",
    "ops",
]
