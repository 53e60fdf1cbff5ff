// The story of a node: what it is now, and every turn of its run that names it.

import { cellsOf } from './board.js';
import { facts, h, many, nodeBadge, NODE_STATES, renew, section, sentence, since } from './dom.js';
import { hangReport } from './run.js';
import { turnItem, turnsOf } from './timeline.js';

/** Whether a turn names a node: in a field, or as a word of its reason. */
function names({ event, action }, node) {
  if (action) return action.node === node;
  const words = event.why?.split(/[\s,:;]+|\.(?=\s|$)/) ?? [];
  return [event.coordinator, event.rank0, event.by, ...(event.nodes ?? []), ...words].includes(node);
}

export function nodeView(run, node) {
  const badge = h('span');
  const lead = h('p', { class: 'lead' });
  const body = h('div');
  const turns = h('ol', { class: 'turns' });
  const empty = h('p', { class: 'empty' }, 'No event of the run names this node.');
  const hangs = h('div', { class: 'cards' });
  const element = h('div', {}, h('div', { class: 'title' }, h('h1', { tabindex: '-1' }, node), badge), lead, body, hangs, section('Story', turns, empty));

  function update({ status, events = [], hang = null }) {
    const cell = cellsOf(status).find((cell) => cell.id === node);
    renew(badge, cell?.state, () => [cell && nodeBadge(cell.state)]);
    const told = cell ? `${NODE_STATES.get(cell.state)?.[1] ?? cell.state}` : 'the server knows no such node now';
    renew(lead, told, () => [sentence(told[0].toUpperCase() + told.slice(1))]);
    renew(body, JSON.stringify([cell, status.coordinator]), () => (cell ? [about(cell, status)] : []));
    const told_of = turnsOf(events, status.actions).filter((turn) => names(turn, node));
    renew(turns, JSON.stringify(told_of.map((turn) => turn.text)), () => told_of.reverse().map(turnItem));
    empty.hidden = told_of.length > 0;
    const stuck = hang && cell?.host && (hang.host === cell.host || hang.groups.some(({ hosts }) => hosts.length === 1 && hosts[0] === cell.host));
    renew(hangs, stuck ? JSON.stringify(hang) : '', () => [stuck && hangReport(hang)]);
    return `${node}: ${told}.`;
  }

  return { title: `${node} of ${run}`, element, update };
}

function about(cell, status) {
  const { lease } = cell;
  const late = lease && lease.ttl_s >= 4 && lease.left_s < lease.ttl_s / 4;
  const margin = lease && h('span', { class: late ? 'late' : '' },
    h('meter', { min: 0, max: lease.ttl_s, low: lease.ttl_s / 4, optimum: lease.ttl_s, value: lease.left_s, 'aria-label': 'Seconds left of the lease' }),
    ` ${lease.left_s} of ${lease.ttl_s} s left${late ? ': it renews late' : ''}`);
  return facts([
    ['Rank', cell.rank == null ? 'none' : String(cell.rank)], ['Host', cell.host], ['Address', cell.address],
    ['Process', cell.pid ? String(cell.pid) : null], ['Workers', cell.workers ? many(cell.workers, 'worker') : null],
    ['Arrived', cell.order ? `as number ${cell.order}` : null], ['Started', cell.started_unix_ms ? since(cell.started_unix_ms) : null],
    ['Joined this round', cell.joined_unix_ms ? since(cell.joined_unix_ms) : null],
    ['Lease', margin], ['Coordinator', cell.id === status.coordinator ? 'of this round' : null], ['Note', cell.note],
  ]);
}
