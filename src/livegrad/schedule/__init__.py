"""The scheduler: turns tensor functions into plans. Decides fusion, buffers and order."""
