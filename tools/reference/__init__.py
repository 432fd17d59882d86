"""What is generated for readers: fields of the kinds, metrics, commands, and the values of the chart."""
