"""What keeps a gang's state safe from the loss of a rank: every unit's state is mirrored on a second rank."""
