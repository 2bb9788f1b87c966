"""The `tern` commands for boards, one file a command, thin."""
