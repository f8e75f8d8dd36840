"""What layers are made of, as they tell it themselves."""

import numpy as np

from logitproof.core import Linear, Parameter


def test_a_linear_map_tells_its_weight_then_its_bias() -> None:
    weight, bias = Parameter("w", np.ones((2, 3))), Parameter("b", np.ones(3))
    assert Linear.from_parameters(weight).parameters == (weight,)
    assert Linear.from_parameters(weight, bias).parameters == (weight, bias)
