"""What a session consists of, besides the model that it watches; `session.py` calls it."""
