"""Typed Python functions: `function/` captures source and compiles it to the value IR, `differentiable/` adds the
protocol of differentiable types and the derivatives of functions."""
