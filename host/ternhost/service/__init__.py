"""Runs a command of tern as a service of systemd."""
