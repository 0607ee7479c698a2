"""livegrad: live, differentiable compute graphs."""
