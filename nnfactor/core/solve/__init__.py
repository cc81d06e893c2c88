"""The loop over sweeps: starts, momentum, mini-batches, stopping, memory."""
