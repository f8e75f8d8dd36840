"""Wrong implementations that the laws must catch, planted into shipped decoders from outside."""

from collections.abc import Mapping
from types import MappingProxyType

from .admissions import FAULTS as ADMISSIONS
from .common import FAULTS as COMMON
from .copies import FAULTS as COPIES
from .equivalents import FAULTS as EQUIVALENT
from .fault import Fault
from .fusions import FAULTS as FUSIONS
from .gradchecks import FAULTS as GRADCHECKS
from .inputs import FAULTS as INPUTS
from .larger import FAULTS as LARGER
from .layers import FAULTS as LAYERS
from .mistakes import FAULTS as MISTAKES
from .modes import FAULTS as MODES
from .narrow import FAULTS as NARROW
from .orders import FAULTS as ORDERS
from .plans import FAULTS as PLANS
from .positions import FAULTS as POSITIONS
from .residuals import FAULTS as RESIDUALS
from .roundings import FAULTS as ROUNDINGS
from .rows import FAULTS as ROWS
from .session_calls import FAULTS as SESSION_CALLS
from .sessions import FAULTS as SESSIONS
from .sharing import FAULTS as SHARING
from .tapes import FAULTS as TAPES
from .texts import FAULTS as TEXTS
from .values import FAULTS as VALUES
from .works import FAULTS as WORKS

__all__ = ["EQUIVALENTS", "REGISTRY", "Fault"]

_ALL = (
    *ORDERS,
    *MISTAKES,
    *POSITIONS,
    *ROWS,
    *TAPES,
    *SESSIONS,
    *SESSION_CALLS,
    *PLANS,
    *TEXTS,
    *VALUES,
    *INPUTS,
    *ROUNDINGS,
    *GRADCHECKS,
    *ADMISSIONS,
    *FUSIONS,
    *WORKS,
    *SHARING,
    *NARROW,
    *RESIDUALS,
    *LARGER,
    *COMMON,
    *COPIES,
    *LAYERS,
    *MODES,
)

REGISTRY: Mapping[str, Fault] = MappingProxyType({f.id: f for f in _ALL})
EQUIVALENTS: Mapping[str, Fault] = MappingProxyType({f.id: f for f in EQUIVALENT})
assert len(REGISTRY) == len(_ALL), "a fault's id stands twice"
