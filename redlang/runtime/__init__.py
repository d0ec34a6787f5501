"""What happens at a call: arrays are looked at, checked, launched on, cached and streamed."""
