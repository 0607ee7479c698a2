"""Live plans on the CPU: one call of native code for each step, with early cut-off and steps on demand."""
