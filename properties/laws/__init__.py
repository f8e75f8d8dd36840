"""Relations that must hold over any implementation."""

from .cached import LAWS as CACHED
from .components import Components
from .copies import LAWS as COPIES
from .counts import LAWS as COUNTS
from .decoder import LAWS as DECODER
from .definitions import LAWS as DEFINITIONS
from .evidence import LAWS as EVIDENCE
from .functions import LAWS as FUNCTIONS
from .fused import LAWS as FUSED
from .gather import LAWS as GATHER
from .gradcheck import LAWS as GRADCHECK
from .grouped import LAWS as GROUPED
from .identities import LAWS as IDENTITIES
from .inputs import LAWS as INPUTS
from .law import Finding, Law, Outcome
from .layers import LAWS as LAYERS
from .lifetimes import LAWS as LIFETIMES
from .modes import LAWS as MODES
from .narrow import LAWS as NARROW
from .norm import LAWS as NORM
from .operations import LAWS as OPERATIONS
from .plans import LAWS as PLANS
from .poison import LAWS as POISON
from .protocol import DecoderUnderTest
from .published import LAWS as PUBLISHED
from .records import LAWS as RECORDS
from .refusals import LAWS as REFUSALS
from .registry import registry
from .resumption import LAWS as RESUMPTION
from .rotary import LAWS as ROTARY
from .roundings import LAWS as ROUNDINGS
from .session_calls import LAWS as SESSION_CALLS
from .sessions import LAWS as SESSIONS
from .sizes import LAWS as SIZES
from .softmax import LAWS as SOFTMAX
from .tape import LAWS as TAPE
from .texts import LAWS as TEXTS
from .trace import LAWS as TRACE
from .truth import LAWS as TRUTH
from .untied import LAWS as UNTIED
from .values import LAWS as VALUES
from .version import VERSION, digest_of
from .work import LAWS as WORK

__all__ = [
    "REGISTRY",
    "VERSION",
    "Components",
    "DecoderUnderTest",
    "Finding",
    "Law",
    "Outcome",
    "digest",
]

REGISTRY = registry(
    PUBLISHED,
    DECODER,
    RESUMPTION,
    MODES,
    TRUTH,
    CACHED,
    SIZES,
    GROUPED,
    UNTIED,
    FUSED,
    SESSIONS,
    SESSION_CALLS,
    POISON,
    GATHER,
    SOFTMAX,
    NORM,
    ROTARY,
    LAYERS,
    FUNCTIONS,
    ROUNDINGS,
    OPERATIONS,
    DEFINITIONS,
    NARROW,
    TAPE,
    TRACE,
    EVIDENCE,
    COPIES,
    GRADCHECK,
    INPUTS,
    REFUSALS,
    COUNTS,
    LIFETIMES,
    PLANS,
    RECORDS,
    IDENTITIES,
    TEXTS,
    VALUES,
    WORK,
)


def digest() -> str:
    """SHA-256 of the ids and statements of all laws."""
    return digest_of(REGISTRY)
