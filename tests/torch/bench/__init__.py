"""Our stores and PyTorch's, measured in one run with the same clients on the same machine.

`make bench-stores` runs it. Numbers from one run can be compared with each other and with nothing else.
"""
