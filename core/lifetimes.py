"""How long a value lives where no graph holds it."""

from typing import Final

# The candidate rows of a cached token, kept until all layers commit.
TICKET: Final = ("attention.key.rotated", "attention.value.split")

# Without a graph a value lives as long as the code that made it holds it: until the operation
# named here begins, or to the end of its section. What is not named stays in the result.
END: Final = "end"


def norm_lifetimes(path: str, after: str) -> dict[str, str]:
    """The steps of a norm whose output `after` reads."""
    steps = ("square", "mean_square", "stable", "scaled", "inverse", "normalized")
    return {
        **{f"{path}.{step}": after for step in steps},
        f"{path}.epsilon": f"{path}.log",
        f"{path}.log": f"{path}.inverse",
        f"{path}.exponent": f"{path}.inverse",
    }


FEED_FORWARD: Final = {
    **norm_lifetimes("ffn_norm", "ffn.gate"),
    "ffn_norm.output": END,
    "ffn.gate": "ffn.up",
    "ffn.activated": "output",
    "ffn.up": "output",
    "ffn.product": "output",
    "ffn.down": END,
}
BLOCK: Final = {
    **norm_lifetimes("attention_norm", "attention.query"),
    "attention_norm.output": END,
    "attention.query": "attention.query.rotated",
    "attention.key": "attention.query.rotated",
    "attention.value": "attention.query.rotated",
    "attention.query.heads": "attention.key.heads",
    "attention.key.heads": "attention.value.heads",
    "attention.value.heads": "attention.query.rotated",
    "attention.query.split": "attention.key.rotated",
    "attention.key.split": "attention.query.lanes",
    "attention.query.lanes": "attention_residual",
    "attention.key.lanes": "attention_residual",
    "attention.value.lanes": "attention_residual",
    "attention.key.transposed": "attention.restored",
    "attention.scores": "attention.restored",
    "attention.scale": "attention.restored",
    "attention.mixture": "attention_residual",
    "attention.swapped": "attention.output",
    "attention.merged": "attention_residual",
    "attention.output": END,
    **FEED_FORWARD,
}
CACHED: Final = {
    **norm_lifetimes("attention_norm", "attention.query"),
    "attention_norm.output": END,
    "attention.query": "attention.key",
    "attention.query.heads": "attention.key",
    "attention.key": "attention.value",
    "attention.key.heads": "attention.value",
    "attention.value": "attention.query.rotated",
    "attention.value.heads": "attention.query.rotated",
    "attention.query.split": "attention.merged",
    "attention.key.split": "attention.merged",
    "attention.query.rotated": "attention_residual",
    "attention.merged": "attention_residual",
    "attention.output": END,
    "attention_residual": END,
    **FEED_FORWARD,
}
FINAL_NORM: Final = norm_lifetimes("final_norm", END)
