"""Live plans on the CPU: one native call per step, with early cutoff and on-demand steps."""
