"""Processes and time: child processes, deadlines, turns of threads, short starts."""
