"""How dashboards of other projects show a fleet: Home Assistant and Grafana.

Both are extensions of the core, which does not know this package.
"""
