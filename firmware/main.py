"""What a board runs: the client, on its own board, until the host's tools interrupt it."""

from tern.boards.this import this_board
from tern.client import serve

serve(this_board())
