"""The scheduler: lowers tensor functions to plans. Decides materialisation, fusion, order, buffers and loops."""
