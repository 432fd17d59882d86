"""The pages of docs/reference, made from the code: fields of the kinds, metrics, commands."""
