"""Names of NumPy, JAX and PyTorch with livegrad's replacements.

Missing attributes of `livegrad` and of tensors look up the advice of their error message here.
"""

from __future__ import annotations

import sys

FUNCTIONS = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "bmm": "matmul",
    "cat": "concat",
    "cho_solve": "linalg.cho_solve",
    "cholesky": "linalg.cholesky",
    "concatenate": "concat",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "det": "linalg.det",
    "diagonal": "linalg.diagonal",
    "eigh": "linalg.eigh",
    "fliplr": "flip(x, axis=1)",
    "flipud": "flip(x, axis=0)",
    "from_numpy": "asarray(array, copy=False)",
    "gather": "take_along_axis",
    "hstack": "concat",
    "inv": "linalg.inv",
    "mm": "matmul",
    "mod": "remainder",
    "mul": "multiply",
    "no_grad": "stop_gradient",
    "norm": "linalg.vector_norm",
    "outer": "linalg.outer",
    "permute": "permute_dims",
    "pinv": "linalg.pinv",
    "power": "pow",
    "qr": "linalg.qr",
    "rand": "random.uniform(key, shape)",
    "randn": "random.normal(key, shape)",
    "ravel": "reshape(x, (-1,))",
    "slogdet": "linalg.slogdet",
    "solve": "linalg.solve",
    "solve_triangular": "linalg.solve_triangular",
    "svd": "linalg.svd",
    "swapaxes": "permute_dims(x, axes)",
    "ravel_tree": "ravel_pytree",
    "register_dataclass": "static_field",
    "register_pytree_node": "register_pytree",
    "tree": "tree_map",
    "tree_util": "tree_map",
    "unbind": "unstack",
    "unique": "unique_values",
    "unsqueeze": "expand_dims",
    "vstack": "concat",
}
METHODS = {
    "block_until_ready": "x.execute()",
    "clone": "copy.copy(x)",
    "copy": "copy.copy(x)",
    "cpu": 'x.to("cpu")',
    "cuda": 'x.to("cuda")',
    "double": "x.astype(lg.float64)",
    "float": "x.astype(lg.float32)",
    "long": "x.astype(lg.int64)",
    "matmul": "x @ y",
    "mm": "x @ y",
    "norm": "lg.linalg.vector_norm(x)",
    "permute": "lg.permute_dims(x, axes)",
    "pow": "x ** y",
    "unsqueeze": "lg.expand_dims(x, axis=0)",
    "view": "x.reshape(shape)",
    "zero_": "lg.zeros_like(x), or x.grad = None for a gradient",
}


def name_of_function(name: str) -> str | None:
    """The livegrad function that replaces a function of another library, or None.

    >>> name_of_function("cat"), name_of_function("wibble")
    ('lg.concat', None)
    """
    replacement = FUNCTIONS.get(name)
    return None if replacement is None else f"lg.{replacement}"


def name_of_method(name: str) -> str | None:
    """The expression that replaces an array method of another library, or None.

    >>> name_of_method("view"), name_of_method("logaddexp"), name_of_method("wibble")
    ('x.reshape(shape)', 'lg.logaddexp(x)', None)
    """
    replacement = METHODS.get(name)
    if replacement is None and name in sys.modules["livegrad"].__all__:
        return f"lg.{name}(x)"
    return replacement
