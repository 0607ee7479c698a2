"""Bodies of blocks: functions of the value IR, and Python functions on tensors, including captured functions.

In: a callable. Out: a `Block`. A Python function is traced once for each set of input types. The context features that
it reads become operands.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, shown
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, scalar_of
from livegrad.ir.walk import toposort
from livegrad.lazy.holders import holders_of
from livegrad.live.blocks.captured_block import CapturedBody
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Body, InputSpec, Specialized, pin_names
from livegrad.live.graph.control import annotated_control
from livegrad.live.graph.problems import GraphError, PinError, origin_of_exception
from livegrad.live.graph.sources import InputType, setting_of
from livegrad.ops.context import FeatureKey, feature_leaves, feature_of
from livegrad.passes.flatten_signature import flatten_signature
from livegrad.runtime.arguments import infer_sizes
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.handle import wrap
from livegrad.tensors.pytrees import flatten
from livegrad.tensors.tracing import name_of, placeholders, result_node
from livegrad.tensors.weak_types import weak_numbers

_MAX_KEPT = 64  # specialisations of one body
_KINDS = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


def block(
    what: Function | Callable[..., Any],
    *,
    name: str | None = None,
    inputs: Sequence[str] | Mapping[str, Type | None] | None = None,
    outputs: str | Sequence[str] = ("result",),
    shapes: Mapping[str, str] | None = None,
) -> Block:
    """Creates a block that computes a function.

    `inputs` names the pins of a function of the value IR. For a Python function the pins are its parameters; `inputs`
    may map them to types, in which symbolic sizes can change without recompiling. Parameter defaults are the values of
    unconnected pins. Keyword arguments of `functools.partial` are not pins, nor are options of livegrad functions, such
    as `axis` of `lg.sum`. `outputs` names the results; a single name may be a string. `shapes` has rules for the shapes
    of outputs, such as "same(0)".

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> block(trace(lambda a, b: a * b, f32, f32, name="product"), inputs=("a", "b"))
    <block product(a, b) -> result>
    >>> block(lambda x, gain=1.0: x * gain, name="amplify", shapes={"result": "same(0)"})
    <block amplify(x, gain) -> result>
    """
    body = body_of(what, inputs, outputs, name)
    if isinstance(body, TracedBody) and inputs is not None:
        _require_parameters(body, inputs)
    return Block(body, name, shapes)


def _require_parameters(body: TracedBody, inputs: Sequence[str] | Mapping[str, Type | None]) -> None:
    """Checks `inputs`: a mapping may contain some of the parameters; a sequence must name all of them."""
    parameters = [spec.name for spec in body.inputs]
    named = tuple(inputs) if isinstance(inputs, Mapping) else pin_names(inputs, "inputs")
    if not set(named) <= set(parameters) or not (isinstance(inputs, Mapping) or list(named) == parameters):
        raise UsageError(
            f"the inputs of `{body.name}` must be its parameters",
            where=caller_origin(),
            expected=", ".join(parameters) or "none",
            found=", ".join(named) or "none",
        )


def body_of(
    what: Function | Callable[..., Any],
    inputs: Sequence[str] | Mapping[str, Type | None] | None = None,
    outputs: str | Sequence[str] = ("result",),
    name: str | None = None,
) -> Body:
    """The body for a function of the value IR or a Python callable."""
    output_names = pin_names(outputs, "outputs")
    by_name = list(inputs) if isinstance(inputs, Mapping) else inputs
    input_names = None if by_name is None else pin_names(by_name, "inputs")
    if isinstance(what, Function):
        return FunctionBody(what, input_names, output_names, name)
    if not callable(what):
        raise UsageError("a block must wrap a function", where=caller_origin(), found=type(what).__name__)
    types = inputs if isinstance(inputs, Mapping) else {}
    for input, declared in types.items():
        if declared is not None and not isinstance(declared, Type):
            expected = "a type such as lg.f32, or None for any"
            raise UsageError(
                f"invalid type for `{input}`", where=caller_origin(), expected=expected, found=shown(declared)
            )
    return TracedBody(what, types, output_names, name)


def edit(engine: Engine, target: Block, what: Function | Callable[..., Any]) -> None:
    """Replaces the function of a block from the next frame on. If the pins stay the same, this is a `code` update.

    >>> engine = Engine()
    >>> shade = engine.add(block(lambda x=2.0: x + 1.0, name="shade"))
    >>> _ = engine.step()
    >>> edit(engine, shade, lambda x=2.0: x * 10.0)
    >>> engine.step().level.name, float(engine.read(shade))
    ('CODE', 20.0)
    """
    engine.edit(target, replace_body(target, what))


def replace_body(target: Block, what: Function | Callable[..., Any]) -> Body:
    """A body with the outputs of a block (and, for a function of the value IR, its inputs)."""
    if not isinstance(target, Block):
        raise UsageError("not a block", where=caller_origin(), found=type(target).__name__)
    if isinstance(target.body, CapturedBody) and not isinstance(what, Function):
        return target.body.with_call(what)
    outputs = tuple(target.outputs)
    if isinstance(target.body, TracedBody) and callable(what) and not isinstance(what, Function):
        declared = {spec.name: spec.type for spec in target.body.inputs}  # symbolic sizes stay symbolic
        return TracedBody(what, declared, outputs, target.name)
    return body_of(what, tuple(target.inputs) if isinstance(what, Function) else None, outputs, target.name)


class FunctionBody:
    """A function of the value IR. Each field of a struct parameter or result is a pin."""

    def __init__(
        self, function: Function, inputs: tuple[str, ...] | None, outputs: tuple[str, ...], name: str | None
    ) -> None:
        self.source = function
        self.name = name or function.name
        flat = flatten_signature(function)
        leaves = feature_leaves(flat.results)
        self._features = tuple(map(feature_of, leaves))
        self._types = flat.parameter_types
        names = inputs or tuple(f"input{index}" for index in range(len(self._types)))
        if len(names) != len(self._types):
            raise UsageError(
                f"`{self.name}` has {len(self._types)} inputs", where=caller_origin(), found=", ".join(names)
            )
        if outputs == ("result",) and len(flat.results) > 1:
            outputs = tuple(f"result{index}" for index in range(len(flat.results)))
        self.inputs = tuple(InputSpec(pin_name, type) for pin_name, type in zip(names, self._types, strict=True))
        self.outputs = outputs
        self._function = make_function(self.name, (*flat.parameters, *leaves), flat.results) if leaves else flat

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """Checks that every input fits, and returns the function."""
        tensors = []
        for spec, input_type in zip(self.inputs, input_types, strict=True):
            assert spec.type is not None
            _require_fit(input_type, spec.type, spec.name)
            if isinstance(spec.type, Tensor):
                tensors.append((spec.type, input_type.type.shape, f"input `{spec.name}` of `{self.name}`"))
        sizes = infer_sizes(tensors)
        return Specialized(self._function, self._features, (), tuple(sorted(sizes.items())))


def _require_fit(input_type: InputType, parameter_type: Type, pin: str) -> None:
    """Raises unless an input type fits a parameter type."""
    element = scalar_of(parameter_type)
    shape: tuple[Any, ...] | None = ()
    if isinstance(parameter_type, Tensor):
        shape = None if len(parameter_type.shape) == len(input_type.type.shape) else parameter_type.shape
    elif isinstance(parameter_type, Vector):
        shape = (parameter_type.size,)
    elif isinstance(parameter_type, Matrix):
        shape = (parameter_type.rows, parameter_type.columns)
    elif not isinstance(parameter_type, Scalar):
        raise PinError(pin, "a number, vector, matrix or tensor", str(parameter_type))
    assert element is not None
    is_same = input_type.type.element is element
    converts = input_type.weak and _KINDS[input_type.type.element.kind] <= _KINDS[element.kind]
    if not (is_same or converts) or (shape is not None and input_type.type.shape != shape):
        raise PinError(
            pin,
            str(parameter_type),
            f"a Python {input_type.type.element.kind}" if input_type.weak else str(input_type.type),
        )


class TracedBody:
    """A Python function on tensors, called once for each set of input types."""

    def __init__(
        self, function: Callable[..., Any], types: Mapping[str, Type | None], outputs: tuple[str, ...], name: str | None
    ) -> None:
        self.name = name or name_of(function)
        self.function = function
        python = function.python_function if isinstance(function, CapturedFunction) else function
        self._positional_count = 0  # the number of positional-only parameters
        specs = []
        for parameter in _parameters(python, self.name):
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise UsageError(f"`{self.name}` must name its parameters", where=caller_origin(), found=str(parameter))
            if parameter.kind is parameter.KEYWORD_ONLY and _is_option(python, parameter.name):
                continue
            default = None if parameter.default is parameter.empty else parameter.default
            if default is not None:
                _require_numbers(default, parameter.name, self.name)
            control = annotated_control(python, parameter)
            specs.append(InputSpec(parameter.name, types.get(parameter.name), default, control))
            self._positional_count += parameter.kind is parameter.POSITIONAL_ONLY
        self.inputs = tuple(specs)
        self.outputs = outputs
        self._by_types: dict[tuple[tuple[Type, ...], tuple[bool, ...]], Specialized] = {}
        self._by_inputs: dict[tuple[InputType, ...], Specialized] = {}  # by the input types, including sizes
        self.traces = 0  # the number of traces, which tests of the cost of edits read

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """Traces the function with tensors of these types, unless a cached result exists."""
        specialized = self._by_inputs.get(input_types)
        if specialized is None:
            specialized = self._specialize(input_types)
            if len(self._by_inputs) >= _MAX_KEPT:
                self._by_inputs.clear()
            self._by_inputs[input_types] = specialized
        return specialized

    def _specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        tensors = []
        for spec, input_type in zip(self.inputs, input_types, strict=True):
            if spec.type is not None:
                _require_fit(input_type, spec.type, spec.name)
                if isinstance(spec.type, Tensor):
                    tensors.append((spec.type, input_type.type.shape, f"input `{spec.name}` of `{self.name}`"))
        sizes = tuple(sorted(infer_sizes(tensors).items()))
        types = tuple(
            _parameter_type(spec, input_type) for spec, input_type in zip(self.inputs, input_types, strict=True)
        )
        weak = tuple(
            input_type.weak and spec.type is None for spec, input_type in zip(self.inputs, input_types, strict=True)
        )
        specialized = self._by_types.get((types, weak))
        if specialized is None:
            specialized = self._trace(types, weak)
            if len(self._by_types) >= _MAX_KEPT:
                self._by_types.clear()
            self._by_types[types, weak] = specialized
        return replace(specialized, sizes=sizes) if sizes else specialized

    def _trace(self, types: tuple[Type, ...], weak: tuple[bool, ...]) -> Specialized:
        self.traces += 1
        nodes = placeholders(types)
        names = [spec.name for spec in self.inputs]
        with weak_numbers(node for is_weak, node in zip(weak, nodes, strict=True) if is_weak):
            result = self._call(dict(zip(names, map(wrap, nodes), strict=True)))
            if isinstance(result, Mapping):
                result = self._results_of(result)
            # Weakly typed results become float32 here.
            results = tuple(result_node(leaf, self.name) for leaf in flatten(result)[0])
        del result  # drops our references: any other holder means that the function read an outside tensor
        return _make_closed_function(results, nodes, self.name)

    def _results_of(self, result: Mapping[str, Any]) -> tuple[Any, ...]:
        """Sorts results that the function returned by name into the order of the pins."""
        if any(output not in result for output in self.outputs):
            raise GraphError(
                f"`{self.name}` returns results whose names do not match its outputs",
                expected=", ".join(self.outputs),
                found=", ".join(map(str, result)) or "an empty dict",
                help="name the outputs: block(..., outputs=(...))",
            )
        return tuple(result[output] for output in self.outputs)

    def _call(self, arguments: dict[str, Any]) -> Any:
        _, named = convert_declared_numbers(self.function, (), arguments, traced_only=True)
        values = list(named.values())[: self._positional_count]
        try:
            return self.function(*values, **dict(list(named.items())[self._positional_count :]))
        except LivegradError:
            raise
        except (Exception, SystemExit) as error:
            raise GraphError(
                f"`{self.name}` raised {type(error).__name__}: {error}", where=origin_of_exception(error)
            ) from error


def _parameters(function: Callable[..., Any], name: str) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-ins have no signature
        what = f"`{name}` has no signature that names its parameters"
        raise UsageError(what, where=caller_origin(), help=f"wrap it: lambda x, y: {name}(x, y)") from None


def _is_option(function: Callable[..., Any], name: str) -> bool:
    """Whether a keyword-only parameter is not a pin: `functools.partial` binds it, or it is an option such as `axis`.

    Functions of livegrad take operands by position, and options by name.
    """
    while isinstance(function, partial):
        if name in function.keywords:
            return True
        function = function.func
    module = getattr(function, "__module__", None) or ""
    home = sys.modules.get(module) if module.startswith("livegrad.") else None
    return home is not None and getattr(home, function.__name__, None) is function


def _require_numbers(default: Any, parameter: str, function: str) -> None:
    try:
        setting_of(default)
    except UsageError as error:
        raise UsageError(
            f"the default of `{parameter}` of `{function}` must be a number, because it becomes the value of a pin",
            where=caller_origin(),
            found=error.found,
            help="use functools.partial for arguments that are not pins",
        ) from None


def _parameter_type(spec: InputSpec, input_type: InputType) -> Type:
    """The type that the function is traced with. Declared symbolic sizes stay symbolic."""
    if spec.type is None:
        return input_type.type
    if isinstance(spec.type, Tensor):
        return spec.type
    element = scalar_of(spec.type)
    assert element is not None
    return Tensor(element, input_type.type.shape)


def _make_closed_function(results: tuple[Node, ...], inputs: Sequence[Node], name: str) -> Specialized:
    """Makes the function of traced results. Features become operands; tensors created inside become constants."""
    parameters, order = set(inputs), toposort(results)
    leaves = [node for node in order if node.op is input_op and node not in parameters]
    features = [leaf for leaf in leaves if isinstance(leaf.attribute("key"), FeatureKey)]
    data = [leaf for leaf in leaves if leaf not in features]
    for leaf in data:
        if any(True for _ in holders_of(leaf)):
            raise GraphError(
                f"`{name}` reads a tensor that is defined outside of it",
                where=leaf.origin,
                help="make it a parameter, and set the pin",
            )
    constants = tuple(np.array(wrap(leaf).numpy(), order="C") for leaf in data)
    closed = make_function(name, (*inputs, *features, *data), results, order)
    return Specialized(closed, tuple(map(feature_of, features)), constants)
