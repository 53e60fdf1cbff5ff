// Elements, words and times. Text only ever becomes a text node or an attribute, so what a node or a run is called is
// never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** An HTML element with attributes and children. */
export const h = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Replaces the children of an element if what they are made from has changed, given by `key`. */
export function renew(element, key, children) {
  if (element.madeFrom === key) return;
  element.madeFrom = key;
  element.replaceChildren(...children().flat().filter((child) => child != null && child !== false));
}

/** Sets the text of an element unless it has it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A duration for people, as `rallypoint status` writes it: two units at most. */
export function age(ms) {
  let left = Math.max(0, Math.floor(ms / 1000));
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = units.findIndex(([, unit]) => left >= unit);
  const parts = units.slice(first < 0 ? 3 : first).slice(0, 2).map(([name, unit]) => {
    const number = Math.floor(left / unit);
    left %= unit;
    return [number, name];
  });
  return parts.filter(([number], place) => place === 0 || number > 0).map((part) => part.join(' ')).join(' ');
}

/** A short duration: milliseconds and tenths of seconds matter while a group forms. */
export const brief = (ms) =>
  ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : age(ms);

/** A time of day; with the date unless it is today's. */
export function clock(ms) {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  return today ? time : `${at.toLocaleDateString()} ${time}`;
}

/** How far the clock of the server is ahead of this one. Ages are counted by the server's, as `status` counts them. */
let ahead = 0;

/** The server says what time it is. */
export function setNow(ms) {
  if (ms != null) ahead = ms - Date.now();
}

export const now = () => Date.now() + ahead;

/** An element that shows how long ago `ms` was, and that `tick` keeps true. */
export const since = (ms) =>
  ms == null ? h('span', {}, 'unknown') : h('time', { datetime: new Date(ms).toISOString(), 'data-since': ms, title: clock(ms) }, age(now() - ms));

/** Brings every age on the page up to date. */
export function tick() {
  for (const element of document.querySelectorAll('[data-since]')) {
    say(element, age(now() - Number(element.dataset.since)));
  }
}

export const number = (value) => Number(value).toLocaleString('en');

export const many = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

/** A sentence ends with a full stop, once. */
export const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** The states of nodes in the order of the legend: the mark of each, and what the state means. */
export const NODE_STATES = new Map([
  ['member', ['', 'a member of the group']],
  ['confirmed', ['=', 'it has confirmed its rank']],
  ['joined', ['+', 'it has joined the round']],
  ['stopping', ['-', 'it has yet to stop workers of the last group']],
  ['suspect', ['?', 'another node reports it as possibly dead']],
  ['lost', ['×', 'a member that has left, or whose lease has expired']],
  ['missing', ['', 'it has not come']],
  ['open', ['', 'the group has room for another node']],
  ['waiting', ['w', 'it came late, and the group re-forms with it']],
  ['spare', ['s', 'the group is full']],
  ['objector', ['!', 'it disagrees with the round']],
  ['idle', ['i', 'alive, and in no round']],
]);

const RUN_MARKS = { none: '–', joinable: '+', frozen: '=', final: '•', closed: '■' };

/** How a run fares, as a word for the style sheet. */
export function tone(run) {
  const { state, closed, counts, restarts } = run;
  if (state === 'closed') return closed?.outcome === 'succeeded' ? 'calm' : 'bad';
  if (state === 'final') return counts.lost || restarts.left === 0 ? 'warn' : 'good';
  return state === 'none' ? 'calm' : 'busy';
}

/** The state of a run: a mark and a word. */
export const runBadge = (run) =>
  h('span', { class: `badge ${tone(run)}` }, h('span', { 'aria-hidden': 'true' }, RUN_MARKS[run.state] ?? '?'),
    run.closed ? run.closed.outcome.replace('_', '-') : run.state);

export const nodeBadge = (state) =>
  h('span', { class: 'badge node' }, h('i', { class: `cell ${state}`, 'aria-hidden': 'true' }, NODE_STATES.get(state)?.[0] ?? ''), state);

/** How many nodes a run has: `7/8 + 1 spare`. */
export function nodesOf({ counts }) {
  const parts = [counts.max ? `${number(counts.present)}/${number(counts.max)}` : number(counts.present)];
  for (const word of ['spare', 'waiting', 'lost']) {
    if (counts[word]) parts.push(`${word === 'lost' ? '−' : '+'} ${number(counts[word])} ${word}`);
  }
  return parts.join(' ');
}

export const restartsOf = ({ restarts }) =>
  restarts.max == null ? '–' : `${restarts.left} of ${restarts.max}`;

export const runPath = (run) => `#/run/${encodeURIComponent(run)}`;
export const nodePath = (run, node) => `${runPath(run)}/node/${encodeURIComponent(node)}`;

/** Names and values, as a description list. */
export const facts = (rows) =>
  h('dl', { class: 'facts' }, rows.filter(([, value]) => value != null && value !== '')
    .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

export const section = (title, ...children) => {
  const id = `s-${title.toLowerCase().replace(/\W+/g, '-')}`;
  return h('section', { 'aria-labelledby': id }, h('h2', { id }, title), ...children);
};
