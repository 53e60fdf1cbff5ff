// One run: what is going on in sentences, what failed, the board of its nodes, and the timeline of its rounds.

import { boardView } from './board.js';
import { age, facts, h, many, nodePath, nodesOf, number, renew, restartsOf, runBadge, section, sentence, since } from './dom.js';
import { timelineView } from './timeline.js';

const TOPICS = { state: 'Also', wait: 'It waits', cause: 'Why', trouble: 'Trouble', remedy: 'What helps' };

/** Numbers as ranges: `0-41, 43-511`. */
export function ranges(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] + 1 === number) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(', ');
}

const VERDICTS = {
  counted: 'It used a restart.',
  refused: 'No restart was left.',
  refunded: 'It followed the loss of a node, and used no restart.',
};

/** The last failure: its root cause, how the run took it, and the last lines of the worker. */
function failure({ last_failure: last, closed }, output) {
  const parts = [];
  if (last) {
    const what = last.hang ? 'The job hung' : 'Workers failed';
    parts.push(h('div', { class: 'card bad' }, h('h3', {}, `${what} in round ${last.round}`),
      h('p', { class: 'blame' }, last.blame), h('p', { class: 'note' }, VERDICTS[last.verdict] ?? last.verdict)));
  }
  if (closed && closed.outcome !== 'succeeded') {
    parts.push(h('div', { class: 'card bad' }, h('h3', {}, `${closed.by} closed the run`), h('p', { class: 'blame' }, closed.reason || 'No reason was given.')));
  }
  if (output && output.round >= (last?.round ?? 0)) {
    const title = `The last lines of the worker that failed in round ${output.round}`;
    parts.push(h('div', { class: 'card bad' }, h('h3', {}, title), last?.blame !== output.failure && h('p', { class: 'note' }, sentence(output.failure)),
      h('pre', { class: 'output', tabindex: '0', 'aria-label': title }, output.lines.join('\n'))));
  }
  return parts;
}

/** Whether the last hang goes on, or is the last failure of the run. One that is over by itself is not shown. */
export const isShown = ({ hang: current, last_failure: last }, hang) =>
  Boolean(hang && (current || (last?.hang && last.round === hang.round)));

/** How many workers are at a place: one by its rank and host, several by their number. */
const whoOf = ({ count, ranks, hosts }) => (count === 1 ? `rank ${ranks[0]} on ${hosts[0]}` : many(count, 'rank'));

/** The ranks at a place, the hosts and the steps, as far as they are told. */
function where({ count, ranks: named, hosts, first_step: first, last_step: last }) {
  const more = count > named.length ? ` and ${number(count - named.length)} more` : '';
  const steps = first == null ? '' : first === last ? `, step ${first}` : `, steps ${first} to ${last}`;
  return `${count === 1 ? 'Rank' : 'Ranks'} ${ranges(named)}${more} on ${hosts.slice(0, 8).join(', ')}${hosts.length > 8 ? ' and others' : ''}${steps}.`;
}

/** Where the workers are that make no progress: the places with the fewest ranks first. */
export function hangReport({ host, silent_ms: silent, round, groups = [], missing = [] }) {
  const places = groups.map((group, place) => h('details', { open: place === 0, 'aria-label': whoOf(group) },
    h('summary', {}, h('b', {}, whoOf(group)), ' ', h('code', {}, group.place)),
    h('p', { class: 'note' }, where(group)),
    h('ol', { class: 'frames' }, group.frames.map((frame) => h('li', {}, h('code', {}, frame))))));
  return h('div', { class: 'card warn hang' }, h('h3', {}, `No progress on ${host} for ${age(silent)}`, h('span', { class: 'note' }, ` round ${round}`)),
    places.length ? places : h('p', {}, 'The stacks of the workers have not been reported.'),
    missing.length > 0 && h('p', { class: 'note' }, `Nodes of these ranks did not answer: ${ranges(missing)}.`));
}

export function runView(run) {
  const board = boardView(run);
  const timeline = timelineView();
  const badge = h('span');
  const lead = h('p', { class: 'lead' });
  const why = h('dl', { class: 'why' });
  const short = h('div');
  const failures = section('Failure');
  const failed = h('div', { class: 'cards' });
  failures.append(failed);
  const element = h('div', {},
    h('div', { class: 'title' }, h('h1', { tabindex: '-1' }, run), badge), lead, short, why, failures,
    section('Nodes', board.element), section('Timeline', timeline.element));

  function update(data) {
    const { status, explain = [], failure: output = null, hang = null } = data;
    renew(badge, JSON.stringify([status.state, status.closed, status.counts, status.restarts]), () => [runBadge(status)]);
    const [first, ...others] = explain;
    renew(lead, first?.text ?? status.reason, () => [first?.text ?? sentence(status.reason)]);
    renew(why, JSON.stringify(others), () => grouped(others));
    renew(short, JSON.stringify([status.counts, status.round, status.restarts, status.since_unix_ms, status.coordinator]), () => {
      const { counts, coordinator } = status;
      const wants = !counts.max ? null : counts.min === counts.max ? number(counts.max) : `${number(counts.min)} to ${number(counts.max)}`;
      return [facts([
        ['Nodes', nodesOf(status)], ['Wanted', wants], ['Round', String(status.round)], ['Restarts left', restartsOf(status)],
        ['Since', since(status.since_unix_ms)],
        ['Coordinator', coordinator && h('a', { href: nodePath(run, coordinator) }, coordinator)],
      ])];
    });
    const hung = isShown(status, hang) ? hang : null;
    renew(failed, JSON.stringify([status.last_failure, status.closed, output, hung]), () => [...failure(status, output), hung && hangReport(hung)]);
    failures.hidden = !failed.childElementCount;
    board.update(status);
    timeline.update(data);
    return `${run}: ${status.state}, ${sentence(status.reason)} ${nodesOf(status)} nodes, round ${status.round}.`;
  }

  function key(name) {
    const does = { '/': board.find, b: board.enter, t: board.toggleTable }[name];
    does?.();
    return Boolean(does);
  }

  return { title: run, element, update, key, focusNode: board.focusNode };
}

/** Sentences under their topics, in the order in which the topics appear. */
function grouped(sentences) {
  const topics = new Map();
  for (const { topic, text } of sentences) topics.set(topic, [...(topics.get(topic) ?? []), text]);
  return [...topics].map(([topic, texts]) => h('div', { class: topic },
    h('dt', {}, TOPICS[topic] ?? topic), texts.map((text) => h('dd', {}, text))));
}
