"""Runs a command on a terminal of its own and copies what it prints to stdout. SIGUSR1 presses Ctrl-C on that terminal.

Ends with the command's exit status, or 128 plus the signal that ended it.
"""

import os
import pty
import signal
import sys


def main():
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ["TERM"] = "xterm-256color"
        os.execvp(sys.argv[1], sys.argv[1:])
    signal.signal(signal.SIGUSR1, lambda *_: os.write(terminal, b"\x03"))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    while True:
        try:
            said = os.read(terminal, 65536)
        except OSError:  # EIO: the command has closed its end
            break
        if not said:
            break
        os.write(1, said)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)


main()
