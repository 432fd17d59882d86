"""report.html: a run as one web page that needs no network; uplot/ holds uPlot 1.6.32 of npm with its licence."""
