"""Tensor methods for data, device placement, graphs, gradients and copies.

A mixin of `Tensor`. Modules that depend on `Tensor` are imported when a method needs them.
"""

from __future__ import annotations

import copy
import importlib
from functools import cache
from secrets import randbits
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from livegrad.diagnostics import DifferentiationError, UsageError, caller_origin
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Node
from livegrad.ir.op import exact_value
from livegrad.ir.types import shape_of
from livegrad.ir.walk import toposort
from livegrad.lazy.deferred_ops import DeferredOp
from livegrad.lazy.devices import assign_devices
from livegrad.lazy.execution import execute
from livegrad.lazy.gradient_variables import (
    depends_on_late_variable,
    depends_on_updated,
    ends_gradients,
    record_late_variable,
    record_pending_update,
    record_update,
    register_variable,
    take_unread_updates,
    unregister_variable,
    variables,
    wants_gradient,
)
from livegrad.lazy.holders import holders_of
from livegrad.lazy.lazy_values import Leaf, is_missing, leaf_node, leaf_of, read_leaf, replace_data
from livegrad.lazy.truncate_history import detach_into_leaf, has_long_history
from livegrad.ops.movement import broadcast
from livegrad.ops.placement import transfer

if TYPE_CHECKING:
    from livegrad.tensors.handle import Tensor
    from livegrad.tensors.tensor_graph import Graph


@cache
def _module(name: str) -> Any:
    return importlib.import_module(f"livegrad.tensors.{name}")


class Lifecycle:
    """Data, device, graph and gradient of a tensor."""

    __slots__ = ()

    # --- data ---

    def fill(self: Any, value: bool | int | float | complex) -> None:
        """Fills a leaf with a number. Tensors computed from it are recomputed when they are next read.

        >>> import livegrad as lg
        >>> x = lg.empty(2)
        >>> y = x + 1.0
        >>> x.fill(2.0); y
        Tensor([3., 3.], dtype=float32)
        >>> x.fill(5.0); y
        Tensor([6., 6.], dtype=float32)
        """
        leaf = self._leaf("fill")
        number = exact_value(value, self.dtype, "fill")
        replace_data(leaf, np.full(self.shape, self.dtype(number), self.dtype.dtype))

    def fill_random(self: Any, seed: int | None = None) -> None:
        """Fills a leaf with uniform random numbers in [0, 1). The same seed gives the same numbers.

        Without a seed, each call draws new numbers.

        >>> import livegrad as lg
        >>> x = lg.empty(3)
        >>> x.fill_random(seed=1)
        >>> bool(lg.all((x >= 0.0) & (x < 1.0)))
        True
        """
        leaf = self._leaf("fill_random")
        if self.dtype.kind != "float":
            raise UsageError("random numbers must be floats", where=caller_origin(), found=str(self.dtype))
        random = _module("random")
        random_values = random.uniform(random.key(randbits(63) if seed is None else seed), self.shape, dtype=self.dtype)
        replace_data(leaf, random_values._value())

    def _leaf(self: Any, user: str) -> Leaf:
        leaf = leaf_of(self.node)
        if leaf is None or leaf.external or (leaf.detached and self._extra is None):
            raise UsageError(
                f"`{user}` replaces the data of a leaf, but this tensor is "
                + ("external memory" if leaf is not None and leaf.external else "computed"),
                where=caller_origin(),
                help="create it with lg.empty or lg.asarray, or update it with x[...] = value",
            )
        return leaf

    # --- device ---

    @property
    def device(self: Any) -> str:
        """The device on which the tensor is computed."""
        return assign_devices(toposort([self.node]))[self.node]

    def to(self: Any, device: str) -> Tensor:
        """Returns the tensor on a device: `cpu`, `cuda`, or `reference` for NumPy.

        A graph may span several devices; values are copied where necessary.

        >>> import livegrad as lg
        >>> x = lg.asarray([1.0, 2.0]).to("reference")
        >>> (x + 1.0).device
        'reference'
        """
        _module("placement").require_device(device)
        wrap = _module("handle").wrap
        return wrap(self.node) if self.device == device else wrap(transfer(self.node, device=device))

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Tensor:
        """Returns the tensor on a device: the Array API name of `to`."""
        if stream is not None:
            raise UsageError("these devices do not have streams", where=caller_origin())
        return self.to(device)

    # --- graph ---

    @property
    def graph(self: Any) -> Graph:
        """The graph that computes this tensor, for inspection: nodes, inputs, summaries and drawings."""
        return _module("tensor_graph").Graph([self])

    def free(self: Any) -> None:
        """Frees the tensor; using it later is an error. Tensors computed from it keep what they need.

        >>> import livegrad as lg
        >>> x = lg.ones(3)
        >>> x.free()
        >>> x
        Tensor(freed)
        """
        self._node = self._extra = self._deferred = None

    # --- gradient ---

    def requires_grad_(self: Any, wanted: bool = True) -> Tensor:
        """Makes the tensor a variable: `backward` adds its gradient to `.grad` and stops there.

        Variables that this tensor was computed from get no gradient through it.

        >>> import livegrad as lg
        >>> first, second = lg.ones(1).requires_grad_(), lg.ones(1).requires_grad_()
        >>> lg.sum(first * 2.0 + second * 3.0).backward()
        >>> first.grad, second.grad
        (Tensor([2.], dtype=float32), Tensor([3.], dtype=float32))
        """
        if wanted and self.dtype.kind not in ("float", "complex"):
            raise DifferentiationError(
                "only floats have a gradient", where=caller_origin(), found=str(self.dtype), help="cast it first"
            )
        if wanted:
            if not self.requires_grad:
                record_late_variable(self, self.node)
            self._ensure_own_leaf()
        self._extra = {"grad": self.grad} if wanted else None
        unregister_variable(self)
        if wanted:
            register_variable(self)
        if wanted and has_long_history(self.node):
            self._set_node(detach_into_leaf(self.node, self._stored_value()))
        return self

    def _ensure_own_leaf(self: Any) -> None:
        """Gives a variable its own leaf: equal expressions share a node, but variables must be distinct."""
        node = self.node
        shares_node = any(variable is not self for variable in _variables(node))
        if shares_node or all(below.op is not input_op and below.op is not parameter_op for below in toposort([node])):
            self._set_node(
                self._snapshot() if leaf_of(node) is not None else detach_into_leaf(node, self._stored_value())
            )

    def _snapshot(self: Any) -> Node:
        """Returns a leaf with the current data, which later fills do not change; a computed tensor keeps its node."""
        leaf = leaf_of(self.node)
        if leaf is None:
            return self.node
        data = read_leaf(leaf)
        return leaf_node(np.array(data, order="C") if leaf.external else data, self.type)

    @property
    def requires_grad(self: Any) -> bool:
        return self._extra is not None

    @property
    def grad(self: Any) -> Tensor | None:
        """The gradient that `backward` has accumulated; set it to None to reset it."""
        return None if self._extra is None else self._extra["grad"]

    @grad.setter
    def grad(self: Any, value: Tensor | None) -> None:
        if self._extra is None:
            raise UsageError("this tensor is not a variable", where=caller_origin(), help="call requires_grad_() first")
        self._extra["grad"] = value

    def backward(self: Any) -> None:
        """Adds the gradient of this number to `.grad` of every variable that it was computed from.

        >>> import livegrad as lg
        >>> w = lg.asarray([1.0, 2.0]).requires_grad_()
        >>> lg.sum(w * w).backward()
        >>> w.grad
        Tensor([2., 4.], dtype=float32)
        """
        if self.shape != () or self.dtype.kind != "float":
            raise DifferentiationError(
                "`backward` starts from one real number",
                where=caller_origin(),
                found=f"{self.dtype} of shape {self.shape}",
                help="call it on lg.sum(...) or lg.mean(...)",
            )
        if depends_on_updated(self.node):
            raise DifferentiationError(
                "a variable was updated in place after this number was computed from it",
                where=caller_origin(),
                help="call backward() before the update, or use x.detach() where the earlier value is needed",
            )
        if depends_on_late_variable(self.node):
            raise DifferentiationError(
                "this number depends on values computed before `requires_grad_()`, whose history is no longer known",
                where=caller_origin(),
                help="call requires_grad_() before the computation, or use x.detach() where no gradient should pass",
            )
        nodes = [node for node in toposort([self.node], stop=ends_gradients) if wants_gradient(node)]
        if not nodes:
            raise DifferentiationError(
                "nothing here requires a gradient",
                where=caller_origin(),
                help="call requires_grad_() on a tensor first",
            )
        gradients = _module("differentiated_call").gradient_by_nodes(self, nodes)
        for node, gradient in zip(nodes, gradients, strict=True):
            for variable in _variables(node):
                # Detached: an update that uses the gradient is not differentiated.
                detached = _module("transforms").stop_gradient(_module("handle").wrap(gradient))
                variable.grad = detached if variable.grad is None else variable.grad + detached
        _compute_unread_updates(self)

    def detach(self: Any) -> Tensor:
        """Returns the same value without a gradient."""
        return _module("transforms").stop_gradient(self)

    # --- storage ---

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _from_pickle, (np.array(self._value()), self.requires_grad)

    def __copy__(self: Any) -> Tensor:
        # The copy of a variable is computed from it, so that gradients flow back.
        copied_node = _copy_node(self.node) if wants_gradient(self.node) else self._snapshot()
        return _module("handle").wrap(copied_node)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Tensor:
        duplicate = self.__copy__()
        if self.requires_grad:
            duplicate.requires_grad_()
            duplicate.grad = copy.deepcopy(self.grad, memo)
        return duplicate

    def _rebind(self: Any, other: Tensor) -> None:
        """Rebinds the handle to the node of another tensor."""
        deferred = other._deferred
        if self._extra is not None:
            record_update(self._node)
        elif deferred is not None and deferred[0].__class__ is DeferredOp and deferred[1] is None:
            if self._deferred is None:
                del self._node  # unset: created on demand
            self._deferred = deferred
            deferred[0].holder = ref(self)
            return
        if variables and self._node is not None:
            record_pending_update(self, self._node)
        self._set_node(other.node)


def _copy_node(node: Node) -> Node:
    """Creates a separate node with the same value."""
    shape = shape_of(node.type)
    return broadcast(node, shape=shape, axes=tuple(range(len(shape))))


def _variables(node: Node) -> list[Any]:
    return [holder for holder in holders_of(node) if holder._extra is not None]


def _compute_unread_updates(loss: Any) -> None:
    """Computes tensors that were updated in place twice since anything read them, and the number of this step.

    A training loop that reads no results would otherwise retain every step.
    """
    nodes = [holder._node for holder in take_unread_updates() if is_missing(holder._node)]
    is_traced = _module("handle").is_traced
    if nodes and not is_traced(loss.node):
        execute([loss.node, *[node for node in dict.fromkeys(nodes) if not is_traced(node)]])


def _from_pickle(array: Any, is_variable: bool = False) -> Tensor:
    # Out-of-band buffers belong to the caller of `pickle.loads`, who may write to them.
    data = array if array.flags.owndata and array.flags.c_contiguous else np.array(array, order="C")
    tensor = _module("array_handles").wrap_array(data)
    return tensor.requires_grad_() if is_variable else tensor
