"""An experiment with gateways."""
