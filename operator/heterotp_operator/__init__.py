"""The HeteroTP operator: turns HeteroTPJobs into gangs of pods and keeps their status up to date."""
