// The nodes of a run: a board with one cell each, thousands of them, or a table. Nodes that the run lacks have cells too.

import { h, NODE_STATES, many, nodePath, nodeBadge, number, renew, say, since } from './dom.js';

/** Up to this number of cells, each has room for the name of its host. */
const MOST_TILES = 48;
/** Places that the group has room for are drawn up to this number. */
const MOST_OPEN = 1024;
/** Nodes in these states are beside the group, and come after it. */
const BESIDE = new Set(['waiting', 'spare', 'objector', 'idle']);
const TABLE = ['Rank', 'State', 'Node', 'Host', 'Address', 'Workers', 'Lease', 'Joined', 'Started', 'Note'];

/** The cells of a run, in order: the group by rank with what it lacks, and then the nodes beside it. */
export function cellsOf(status) {
  const { nodes, missing, counts, state } = status;
  const here = new Set(nodes.map((node) => node.id));
  const cells = nodes.map((node) => ({ key: node.id, ...node }));
  const lacking = missing.filter((node) => !here.has(node.id));
  lacking.forEach((node, place) => cells.push({
    key: node.id ?? `rank ${node.rank ?? place}`, id: node.id, rank: node.rank, state: 'missing', host: '', note: node.why,
  }));
  // A lost member is to be replaced as well, but has a cell already.
  const unknown = Math.max(0, counts.needed - missing.length);
  for (let place = 0; place < unknown; place += 1) {
    cells.push({ key: `missing ${place}`, state: 'missing', host: '', note: 'it has not been seen' });
  }
  const room = state === 'closed' ? 0 : counts.max - cells.filter((cell) => !BESIDE.has(cell.state)).length;
  if (room <= MOST_OPEN) {
    for (let place = 0; place < room; place += 1) {
      cells.push({ key: `open ${place}`, state: 'open', host: '', note: 'the group has room for another node' });
    }
  }
  const part = (cell) => (BESIDE.has(cell.state) ? 3 : cell.rank == null ? (cell.state === 'open' ? 2 : 1) : 0);
  const order = (cell) => [part(cell), cell.rank ?? 0, cell.order ?? 0];
  const keyed = cells.map((cell) => [order(cell), cell]);
  keyed.sort(([a], [b]) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  return keyed.map(([, cell]) => cell);
}

const leaseOf = (lease) => (lease ? `${lease.left_s} of ${lease.ttl_s} s` : '');

/** What a cell says in words. */
function labelOf(cell) {
  const name = cell.id ?? (cell.state === 'open' ? 'free place' : 'no node');
  const parts = [cell.rank == null ? null : `rank ${cell.rank}`, name, cell.id && cell.state];
  if (cell.state === 'missing' && !cell.id) parts.push('missing');
  if (cell.note) parts.push(cell.note);
  return parts.filter(Boolean).join(', ');
}

export function boardView(run) {
  const legend = h('div', { class: 'legend', role: 'group', 'aria-label': 'States of nodes' });
  const find = h('input', { type: 'search', placeholder: 'Find a node  /', 'aria-label': 'Find a node by name, host or rank', autocomplete: 'off', spellcheck: 'false' });
  const asTable = h('button', { type: 'button', 'aria-pressed': 'false' }, 'Table');
  const readout = h('p', { class: 'readout' });
  const grid = h('div', { class: 'board', role: 'group', 'aria-label': 'Board of nodes; arrow keys move' });
  const body = h('tbody');
  const table = h('table', { class: 'nodes', hidden: true }, h('caption', { class: 'unseen' }, 'Nodes of the run'),
    h('thead', {}, h('tr', {}, TABLE.map((name) => h('th', { scope: 'col' }, name)))), body);
  const element = h('div', {}, h('div', { class: 'tools' }, legend, find, asTable), readout, grid, table);

  /** The elements by key, and the cells in order, each with its element. */
  const made = new Map();
  const rows = new Map();
  let cells = [];
  let wanted = { text: '', state: null };
  let current = null;

  const matches = (cell) => (!wanted.state || cell.state === wanted.state) &&
    (!wanted.text || [cell.id, cell.host, cell.address].some((name) => name?.toLowerCase().includes(wanted.text)) || String(cell.rank) === wanted.text);

  function element_of(cell, tiles) {
    let element = made.get(cell.key);
    if (!element) {
      element = h('a', { tabindex: '-1' });
      made.set(cell.key, element);
    }
    element.cell = cell;
    const text = labelOf(cell);
    const key = `${tiles} ${cell.state} ${text}`;
    if (element.madeFrom === key) return element;
    element.madeFrom = key;
    element.className = `cell ${cell.state}`;
    element.setAttribute('aria-label', text);
    if (cell.id) element.href = nodePath(run, cell.id);
    else element.setAttribute('role', 'img');
    const mark = NODE_STATES.get(cell.state)?.[0] ?? '?';
    if (!tiles) {
      element.textContent = mark;
    } else {
      element.replaceChildren(h('b', {}, cell.rank == null ? '' : String(cell.rank)),
        h('span', { class: 'host' }, cell.host || cell.id || ''), h('span', { class: 'state' }, `${mark} ${cell.state}`.trim()));
    }
    return element;
  }

  function update(status) {
    cells = cellsOf(status);
    const tiles = cells.length <= MOST_TILES;
    grid.classList.toggle('tiles', tiles);
    const elements = cells.map((cell) => element_of(cell, tiles));
    const same = elements.length === grid.children.length && elements.every((element, place) => grid.children[place] === element);
    if (!same) {
      const focused = document.activeElement;
      grid.replaceChildren(...elements);
      if (grid.contains(focused)) focused.focus();
      const keys = new Set(cells.map((cell) => cell.key));
      for (const key of made.keys()) if (!keys.has(key)) made.delete(key);
    }
    const first = cells.findIndex((cell) => BESIDE.has(cell.state));
    elements.forEach((element, place) => element.classList.toggle('beside', place === first && place > 0));
    if (!current || !made.has(current)) setCurrent(cells[0]?.key);
    renewLegend();
    mark();
    if (!table.hidden) fillTable();
  }

  function renewLegend() {
    const counts = new Map();
    for (const { state } of cells) counts.set(state, (counts.get(state) ?? 0) + 1);
    if (wanted.state && !counts.has(wanted.state)) wanted.state = null;
    renew(legend, JSON.stringify([[...counts], wanted.state]), () => [...NODE_STATES].filter(([state]) => counts.has(state))
      .map(([state, [, meaning]]) => h('button', { type: 'button', 'data-state': state, title: meaning, 'aria-pressed': String(wanted.state === state) },
        nodeBadge(state), h('span', { class: 'count' }, number(counts.get(state))))));
  }

  /** Dims what is not looked for, and says how much is. */
  function mark() {
    const looking = wanted.text || wanted.state;
    let found = 0;
    for (const cell of cells) {
      const is = matches(cell);
      found += is;
      made.get(cell.key)?.classList.toggle('dim', !is);
      const row = rows.get(cell.key);
      if (row) row.hidden = !is;
    }
    grid.classList.toggle('looking', Boolean(looking));
    read(looking ? `${number(found)} of ${many(cells.length, 'cell')} ${found === 1 ? 'matches' : 'match'}.` : '');
  }

  function read(text) {
    const cell = made.get(current)?.cell;
    const focused = grid.contains(document.activeElement) && cell;
    say(readout, text || (focused ? detail(cell) : 'Arrow keys move on the board, Enter opens a node.'));
  }

  function detail(cell) {
    const lease = cell.lease && `lease ${leaseOf(cell.lease)}`;
    const workers = cell.workers && many(cell.workers, 'worker');
    return [labelOf(cell), cell.id?.startsWith(cell.host) ? null : cell.host, cell.address, workers, lease].filter(Boolean).join(' · ');
  }

  function setCurrent(key) {
    made.get(current)?.setAttribute('tabindex', '-1');
    current = key;
    made.get(current)?.setAttribute('tabindex', '0');
  }

  function move(to) {
    const cell = cells[Math.max(0, Math.min(cells.length - 1, to))];
    if (!cell) return;
    made.get(cell.key).focus();
  }

  function fillTable() {
    const kept = cells.map((cell) => {
      const row = rows.get(cell.key) ?? h('tr');
      rows.set(cell.key, row);
      renew(row, JSON.stringify(cell), () => [
        h('td', { class: 'number' }, cell.rank == null ? '' : String(cell.rank)),
        h('td', {}, nodeBadge(cell.state)),
        h('th', { scope: 'row' }, cell.id ? h('a', { href: nodePath(run, cell.id) }, cell.id) : ''),
        h('td', {}, cell.host ?? ''),
        h('td', {}, cell.address ?? ''),
        h('td', { class: 'number' }, cell.workers ? String(cell.workers) : ''),
        h('td', { class: 'number' }, leaseOf(cell.lease)),
        h('td', { class: 'number' }, cell.joined_unix_ms ? since(cell.joined_unix_ms) : ''),
        h('td', { class: 'number' }, cell.started_unix_ms ? since(cell.started_unix_ms) : ''),
        h('td', {}, cell.note ?? ''),
      ]);
      return row;
    });
    if (kept.length !== body.children.length || kept.some((row, place) => body.children[place] !== row)) {
      body.replaceChildren(...kept);
    }
    const keys = new Set(cells.map((cell) => cell.key));
    for (const key of rows.keys()) if (!keys.has(key)) rows.delete(key);
    mark();
  }

  function toggleTable() {
    const show = table.hidden;
    table.hidden = !show;
    grid.hidden = show;
    asTable.setAttribute('aria-pressed', String(show));
    if (show) fillTable();
  }

  grid.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const from = cells.findIndex((cell) => cell.key === current);
    const wide = getComputedStyle(grid).gridTemplateColumns.split(' ').length;
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide, PageDown: 16 * wide, PageUp: -16 * wide,
      Home: -cells.length, End: cells.length,
    };
    if (!(event.key in steps)) return;
    move(from + steps[event.key]);
    event.preventDefault();
  });
  grid.addEventListener('focusin', ({ target }) => {
    if (target.cell) setCurrent(target.cell.key);
    read('');
  });
  grid.addEventListener('focusout', () => setTimeout(mark));
  grid.addEventListener('mouseover', ({ target }) => {
    const { cell } = target.closest('.cell') ?? {};
    if (cell) read(detail(cell));
  });
  grid.addEventListener('mouseleave', mark);
  legend.addEventListener('click', ({ target }) => {
    const state = target.closest('button')?.dataset.state;
    if (!state) return;
    wanted.state = wanted.state === state ? null : state;
    renewLegend();
    legend.querySelector(`[data-state="${state}"]`)?.focus();
    mark();
  });
  find.addEventListener('input', () => {
    wanted.text = find.value.trim().toLowerCase();
    mark();
  });
  find.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') move(cells.findIndex(matches));
  });
  asTable.addEventListener('click', toggleTable);

  return {
    element,
    update,
    find: () => find.focus(),
    enter: () => (table.hidden ? made.get(current)?.focus() : body.querySelector('a')?.focus()),
    toggleTable,
    /** Moves to the cell of a node; false if it has none. */
    focusNode(id) {
      const cell = made.get(id);
      cell?.focus();
      return Boolean(cell);
    },
  };
}
