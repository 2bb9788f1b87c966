"""What goes wrong on a network that nobody trusts, made to go wrong on purpose: faults, attacks, and what must hold."""
