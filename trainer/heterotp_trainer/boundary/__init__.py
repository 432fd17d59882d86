"""What happens between two iterations: the exchange of reports, control documents, injections."""
