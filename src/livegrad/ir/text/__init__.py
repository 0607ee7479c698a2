"""The text format of the value IR. Printing and parsing a function or module gives the same object.

    function @step(%p0: i32, %p1: f32) -> f32 {
      %0 = constant(type=f32, value=0.5): f32
      %1 = mul(%p1, %0): f32
      return %1
    }
    export function @shade(%p0: i32, %p1: f32) -> f32 {
      %0 = for_loop(%p0, %p1; body=@step): f32  # scene.py:41:12
      return %0
    }

One node per line, operands before attributes, functions before their users. Attributes are `none`, `true`, `-0.0`,
`complex(1.0, 2.0)`, `"text"`, a type, `<2*n + 1>` (a symbolic size), `@function`, `$key` or `[a, tuple, of, those]`.
"""

from livegrad.ir.text.parsing import parse_function, parse_module, parse_type
from livegrad.ir.text.printing import key_labels, print_function, print_module, print_type
from livegrad.ir.text.summary import summarize

__all__ = [
    "key_labels",
    "parse_function",
    "parse_module",
    "parse_type",
    "print_function",
    "print_module",
    "print_type",
    "summarize",
]
