"""What all tests share."""

import signal

# A shell without job control starts background programs deaf to Ctrl-C, and their children inherit that: these tests
# press Ctrl-C, so they must not depend on how they were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
