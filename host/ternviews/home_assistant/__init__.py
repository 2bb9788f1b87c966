"""Home Assistant shows a fleet as one device, through the fleet's broker.

It is a guest of the broker, and an observer of the served run publishes for it.
"""
