"""Device placement: moves a value to a device without changing it."""

from __future__ import annotations

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type


def _transfer_type(source: Type, *, device: str) -> Type:
    if not isinstance(source, Tensor) or not isinstance(device, str):
        raise TypeRuleError("transfer takes a tensor and the name of a device", found=f"{source} to {device!r}")
    return source


# Everything computed from the result runs on the device. Each backend compiles only its own part, where this op is the
# identity.
transfer = Op(
    "transfer",
    type_of=_transfer_type,
    evaluate=lambda value, *, device: value,
    jvp=lambda y, dx: None if dx is None else transfer(dx, device=y.attribute("device")),
    transpose=lambda y, ct, linear: (ct,),
    linear_in=(0,),
    expand=lambda y: y.operands[0],
    cost=0.0,
)
