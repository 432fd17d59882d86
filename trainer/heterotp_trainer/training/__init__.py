"""The built-in trainers: clients of `Session`, and nothing but clients."""
