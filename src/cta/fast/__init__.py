"""The same training step, computed faster on an accelerator: fused layers, stacked networks, merged forward passes."""
