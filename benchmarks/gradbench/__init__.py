"""GradBench's evaluations after their published definitions (github.com/gradbench/gradbench), in float64.

`inputs` makes the data, `programs` are the functions for any array library, `ir_programs` the same in livegrad's IR."""
