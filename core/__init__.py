"""The system: token ids to logits and loss, every bit specified."""

if "." not in __name__:  # pragma: no cover - a child process of test_project runs this
    raise ImportError("import logitproof.core; a bare 'core' is a second copy under a wrong name")

from . import floats, ops
from .attention import Attention
from .backbone import DecoderBackbone
from .batches import TextBatch, pack_documents, pad_documents
from .block import DecoderBlock
from .build import Constructed
from .cache import KvCache
from .census import census
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
from .planned import Plan
from .planner import Admission, admit, plan
from .prepared import InputEncoder, PreparedDecoderInput
from .records import ModelRecord, RunRecord
from .session import DecodeSession
from .tape import NO_GRAD, RECORDING, Context, Parameter, Tensor, constant
from .text import Decoder, TextInputEncoder, TextOutputHead
from .tokenizer import BpeTokenizer
from .trace import Trace

__all__ = [
    "NO_GRAD",
    "RECORDING",
    "Admission",
    "AdmissionRefusal",
    "Attention",
    "BindingRefusal",
    "BpeTokenizer",
    "CapacityRefusal",
    "Constructed",
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
    "ModelRecord",
    "NumericRefusal",
    "Parameter",
    "Plan",
    "PreparedDecoderInput",
    "RecordRefusal",
    "Refusal",
    "RmsNorm",
    "RunRecord",
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
    "admit",
    "census",
    "constant",
    "floats",
    "ops",
    "pack_documents",
    "pad_documents",
    "plan",
]
