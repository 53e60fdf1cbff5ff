"""Ours and its peers, measured alternately in one run: `make bench-peers`.

- `results`: samples by part, table, row and side; what was measured on what; the raw JSON.
- `figures`: medians, spreads, winners, and how numbers are written. `tables` makes Markdown of them, `charts` and `svg`
  make plots, `pages` puts both where readers find them.
- `parts`: what is measured, a file for each part. `crew` runs nodes and agents of PyTorch, `hosts` gives them hosts.
- `progress`, `machine`: how long it takes, and on what.

Everything but the parts, the crew and the hosts is pure and needs no PyTorch; tests/python tests it.
"""
