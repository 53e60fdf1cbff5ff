// Two views of a server: its runs, as `squeue` lists jobs, and the server itself.

import { h, facts, many, nodesOf, number, renew, restartsOf, runBadge, runPath, say, section, since } from './dom.js';

const COLUMNS = ['Run', 'State', 'Nodes', 'Round', 'Restarts left', 'Since', 'Reason'];

/** The list of runs. */
export function runsView() {
  const summary = h('p', { class: 'lead' });
  const body = h('tbody');
  const table = h('table', { class: 'runs' }, h('caption', { class: 'unseen' }, 'Runs of this server'),
    h('thead', {}, h('tr', {}, COLUMNS.map((name) => h('th', { scope: 'col' }, name)))), body);
  const none = h('p', { class: 'empty', hidden: true }, 'A run appears here when its first node joins: ',
    h('code', {}, 'rallypoint run --rdzv-endpoint HOST --rdzv-id NAME --nnodes N -- PROGRAM'));
  const rows = new Map();

  body.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...body.querySelectorAll('a')];
    links[links.indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  });

  function update({ runs }) {
    say(summary, told(runs));
    table.hidden = runs.length === 0;
    none.hidden = runs.length !== 0;
    const kept = runs.map((run) => {
      const row = rows.get(run.run) ?? h('tr');
      rows.set(run.run, row);
      renew(row, JSON.stringify(run), () => [
        h('th', { scope: 'row' }, h('a', { href: runPath(run.run) }, run.run)),
        h('td', {}, runBadge(run)),
        h('td', { class: 'number' }, nodesOf(run)),
        h('td', { class: 'number' }, String(run.round)),
        h('td', { class: 'number' }, restartsOf(run)),
        h('td', { class: 'number' }, since(run.since_unix_ms)),
        h('td', { class: 'reason' }, run.reason),
      ]);
      return row;
    });
    for (const [name, row] of rows) if (!kept.includes(row)) rows.delete(name);
    // A row that stays where it is keeps the focus.
    if (kept.length !== body.children.length || kept.some((row, place) => body.children[place] !== row)) {
      const focused = document.activeElement;
      body.replaceChildren(...kept);
      if (body.contains(focused)) focused.focus();
    }
    return told(runs);
  }

  return { title: 'Runs', element: h('div', {}, h('h1', { tabindex: '-1' }, 'Runs'), summary, none, table), update };
}

function told(runs) {
  if (!runs.length) return 'This server has no runs.';
  const count = (like) => runs.filter(like).length;
  const parts = [
    [count((run) => run.state === 'final'), 'running'],
    [count((run) => ['joinable', 'frozen'].includes(run.state)), 'forming a group'],
    [count((run) => run.state === 'none'), 'without a round'],
    [count((run) => run.closed?.outcome === 'succeeded'), 'succeeded'],
    [count((run) => run.closed && run.closed.outcome !== 'succeeded'), 'failed'],
  ];
  const said = parts.filter(([count]) => count).map(([count, what]) => `${number(count)} ${what}`);
  return `${many(runs.length, 'run')}: ${said.join(', ')}.`;
}

const SERVER = {
  endpoint: 'Endpoint', kind: 'Kind', version: 'Version', db_size: 'Database', revision: 'Revision', keys: 'Keys',
  leases: 'Leases', watchers: 'Watches', problems: 'Problems',
};

/** What the server says of itself. */
export function serverView() {
  const body = h('div', { class: 'card' });
  const element = h('div', {}, h('h1', { tabindex: '-1' }, 'Server'), section('What it says of itself', body),
    h('p', { class: 'note' }, 'Its metrics are at ', h('a', { href: 'metrics' }, '/metrics'), ' where this server has them.'));

  function update({ server, runs }) {
    renew(body, JSON.stringify([server, runs.length]), () => {
      const names = [...new Set([...Object.keys(SERVER), ...Object.keys(server ?? {})])];
      const rows = names.map((name) => [SERVER[name] ?? name, shown(name, server?.[name])]);
      return [facts([...rows, ['Runs', number(runs.length)]])];
    });
  }

  return { title: 'Server', element, update };
}

function shown(name, value) {
  if (value == null) return h('span', { class: 'unknown' }, 'it does not say');
  if (name === 'db_size') return value < 1 << 20 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1048576).toFixed(1)} MiB`;
  if (typeof value === 'number') return number(value);
  if (Array.isArray(value)) return value.join('; ') || 'none';
  return String(value);
}
