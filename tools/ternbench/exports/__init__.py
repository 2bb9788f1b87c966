"""Understands the tables that programs of instruments export, each in a form of its own."""
