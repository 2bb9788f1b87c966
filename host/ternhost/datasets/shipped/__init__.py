"""The data sets that tern brings or makes itself."""
