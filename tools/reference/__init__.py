"""Generated documentation: fields of the kinds, metrics, commands, and the values of the chart."""
