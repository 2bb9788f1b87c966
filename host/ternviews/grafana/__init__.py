"""A dashboard of Grafana and alerts of Prometheus for the metrics of `tern serve --metrics`."""
