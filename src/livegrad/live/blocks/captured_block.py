"""Creates blocks that call a library: opaque work that the engine captures once and replays in every frame.

In: a Python function `call(stream, inputs..., outputs...)` that writes its outputs. Out: a block. On the CPU arrays are
NumPy views of the engine's memory; on CUDA they are device arrays, and the call runs while `stream` is captured.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.types import Scalar, Tensor
from livegrad.live.graph.block import Block, InputSpec, Specialized
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.shape_rules import apply_shape_rule
from livegrad.live.graph.sources import InputType

OutputRule = str | tuple[str, Scalar]  # a shape rule, and the element type (default: that of the first input)


def captured_block(
    call: Callable[..., None],
    *,
    outputs: Mapping[str, OutputRule],
    in_memory: Sequence[str] = (),
    name: str | None = None,
) -> Block:
    """Creates a block that calls a library.

    `outputs` maps the parameters of `call` that it writes to shape rules; the other parameters, after the stream, are
    inputs. Changing a number requires a new capture, unless `in_memory` lists it: then the call receives an array of
    one element, and a change is a write. The call must depend only on its arguments.

    >>> import numpy as np
    >>> from livegrad.live.engine import Engine
    >>> def scale(stream, x, factor, result):
    ...     np.multiply(x, factor, out=result)
    >>> engine = Engine()
    >>> scaled = engine.add(captured_block(scale, outputs={"result": "same(0)"}))
    >>> engine.set(scaled["x"], np.arange(3.0))
    >>> engine.set(scaled["factor"], 2.0)
    >>> _ = engine.step()
    >>> engine.set(scaled["factor"], 10.0)
    >>> engine.step().level.name, engine.read(scaled).tolist()
    ('RECAPTURE', [0.0, 10.0, 20.0])
    """
    return Block(CapturedBody(call, outputs, in_memory, name), name)


class CapturedBody:
    """The body of a library call."""

    def __init__(
        self,
        call: Callable[..., None],
        outputs: Mapping[str, OutputRule],
        in_memory: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        self.name = name or getattr(call, "__name__", "call")
        parameters = list(inspect.signature(call).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        inputs = [parameter for parameter in parameters if parameter.name not in outputs]
        if names != [*(parameter.name for parameter in inputs), *outputs]:
            raise UsageError(
                f"`{self.name}` takes a stream, its inputs, then its outputs",
                where=caller_origin(),
                expected=", ".join(["stream", *(p.name for p in inputs), *outputs]),
                found=", ".join(inspect.signature(call).parameters),
            )
        unknown = [input for input in in_memory if input not in names or input in outputs]
        if unknown:
            raise UsageError(f"`{self.name}` has no input {', '.join(unknown)}", where=caller_origin())
        self.inputs = tuple(InputSpec(p.name, None, None if p.default is p.empty else p.default) for p in inputs)
        self.outputs = tuple(outputs)
        self._call, self._rules = call, dict(outputs)
        self._in_memory = tuple(spec.name in in_memory for spec in self.inputs)

    def with_call(self, call: Callable[..., None]) -> CapturedBody:
        """A body with another call, and the same outputs."""
        names = [spec.name for spec, is_in_memory in zip(self.inputs, self._in_memory, strict=True) if is_in_memory]
        return CapturedBody(call, self._rules, names, self.name)

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """The call for inputs of these types."""
        shapes = [input_type.type.shape for input_type in input_types]
        results = []
        for rule in self._rules.values():
            shape_rule, element = rule if isinstance(rule, tuple) else (rule, None)
            if element is None and not input_types:
                raise UsageError(f"`{self.name}` has no inputs", help='give the type: outputs={"name": (rule, f32)}')
            results.append(Tensor(element or input_types[0].type.element, apply_shape_rule(shape_rule, shapes)))  # type: ignore[arg-type]
        types = tuple(input_type.type for input_type in input_types)
        return Specialized(CapturedCall(self.name, self._call, types, tuple(results), self._in_memory))
